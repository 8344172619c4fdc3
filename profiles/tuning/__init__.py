"""Which drafter, budget and γ to use, or none: predicted for many settings, measured for a few.

1. `tuner`, with surveys: what each drafter would have had accepted on the documents, for every γ.
2. `pricing`: with the machine's step times, what each candidate would take; does it fit?
3. `ranking`: the ranking on an objective. Plain decoding competes.
4. `verifying`: real runs of the best few and of plain decoding, in turn; `correcting`: which is
   worth the next run; `variants`: what cannot be priced, on top of what can; `ranking` again:
   who wins.
5. `recommend`: what to do, and why, in words.

All but 1 and 4 are pure: no torch.
"""
