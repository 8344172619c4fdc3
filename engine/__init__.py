"""The decoding engine: model, caches, selectors, acceptance rules and the speculative loop.

Importing this package imports neither torch nor transformers; the modules that need them do.

Shape legend, used in every comment of this package:
B rows of a batch, S context (cached tokens of a row), T new tokens per row of one forward,
W selected positions (the KV budget), G draft length γ, H query heads, Hkv KV heads, D head
dimension, L layers, V vocabulary.
"""
