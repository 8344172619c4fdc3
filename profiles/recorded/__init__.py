"""The profile file: what a sweep measured, cell by cell, in a form that other tools can read.

JSON lines, schema `magicdec.profile/2`. The first line is the header: where and on what it was
measured. Each line after it is one cell: a setting (batch, context, drafter, γ), the raw samples
of its repeats, and counts from which rates can be pooled. What was not measured is null, never 0.
Rates, lengths and speedups are written for other readers; `read_profile` computes them anew from
the counts and refuses a file whose figures do not follow from them.
"""
