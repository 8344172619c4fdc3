"""Acceptance: rates by position (`rates`, `recorded`), and the survey, by which one run prices
every drafter and every γ.

1. `survey`: the rows are decoded once, with one of the drafters. Speculation is lossless, so that
   this is the text of plain decoding and of every other drafter, too.
2. `forced`: a drafter reads that text, many tokens a pass, over its own sparse view of the cache:
   what would it have drafted at each position?
3. `replay`: that decides how speculative decoding would have walked through the text, for every γ.
"""
