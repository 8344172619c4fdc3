"""Indexes of keys that dynamic selectors search: exact, by page, quantized."""
