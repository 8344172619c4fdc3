"""The full KV cache, its prefill, and what of it is reused or kept on disk."""
