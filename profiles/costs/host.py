"""What drafting without a model takes on this machine."""

from __future__ import annotations

import functools
import statistics
import time

import numpy as np

from magicdec.engine.ngram import continuation
from magicdec.profiles.costs.speculation import HostCost

SHORT, LONG, TIMES = 1_000, 9_000, 5  # tokens, tokens, repetitions


@functools.cache
def lookup_cost() -> HostCost:
    """Of one row's search, measured here and now, in some milliseconds: in texts that never repeat
    themselves, which take longest."""
    short, long = (_seconds(tokens) for tokens in (SHORT, LONG))
    token = max(0.0, (long - short) / (LONG - SHORT))
    return HostCost(max(0.0, short - token * SHORT), token)


def _seconds(tokens: int) -> float:
    text, times = np.arange(tokens), []
    for _ in range(TIMES):
        begun = time.perf_counter()
        continuation(text, 4)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)
