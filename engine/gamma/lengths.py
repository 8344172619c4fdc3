"""Ω, the tokens that a step gives, by the length of its draft."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import mul


def lengths(rates: Iterable[float]) -> list[float]:
    """Of drafts of 0, 1, 2, ... tokens: 1 + a_1 + a_1·a_2 + ..., from the conditional acceptance
    a_i of each position."""
    return list(accumulate(accumulate(rates, mul), initial=1.0))
