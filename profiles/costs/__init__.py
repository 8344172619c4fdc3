"""The cost model: what a decoding pass takes, and what speculation brings.

Pure numpy, no torch: `magicdec predict` starts in a fraction of a second. Every function takes
scalars or arrays that broadcast against each other, so that one call prices a whole grid.

Symbols, used in every file of this package:
B rows, S context (cached tokens of a row), q new tokens per row of one pass, K draft budget
(entries a draft step reads per row), γ draft length, α acceptance, Ω tokens per step and row;
T_T one plain decoding step, T_D one draft step, T_V one verify pass of γ + 1 tokens per row.
Times are seconds, sizes bytes, rates per second, unless a name says otherwise (`_ms`).
"""
