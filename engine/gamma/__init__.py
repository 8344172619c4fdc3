"""How many tokens a step drafts. Plain data and arithmetic: no torch."""
