"""Plain and speculative decoding of the same rows, and whether the texts agree."""
