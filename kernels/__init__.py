"""Attention and linear kernels behind one contract, a readable reference beside each fast one."""
