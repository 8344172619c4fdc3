"""Acceptance rules: which drafted tokens are kept, and what comes after them."""
