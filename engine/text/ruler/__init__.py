"""Long-context tasks as documents: own generators after RULER (arXiv 2404.06654).

A task fills any length, every row with another instance, and ends with its question, so that what
the model continues with is the answer. Texts are synthetic and not RULER's: scores cannot be
compared with published ones.
"""
