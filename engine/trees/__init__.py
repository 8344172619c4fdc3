"""Speculation over trees: several continuations of a text, judged in one pass."""
