"""What a step usually takes, by those of its run that had as many rows and draft tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LEAST_STEPS = 8  # that a percentile is taken of
LEAST_LIKE = 4  # steps that a usual time is taken from

Floats = NDArray[np.float64]
Like = tuple[int, int]  # rows, draft tokens


def scatter(likes: Sequence[Like], times: Sequence[float]) -> float | None:
    """The 90th percentile of times ÷ usual ones, ÷ their median."""
    ratios = np.array(times) / np.array(usual(likes, times))
    known = ratios[np.isfinite(ratios)]
    if len(known) < LEAST_STEPS:
        return None
    return float(np.quantile(known, 0.9, method="lower") / np.median(known))


def usual(likes: Sequence[Like], times: Sequence[float]) -> list[float]:
    """What each step should have taken by its likes; NaN where there are too few."""
    found, seconds = np.full(len(times), np.nan), np.array(times)
    for like in set(likes):
        at = np.array([i for i, other in enumerate(likes) if other == like])
        if len(at) >= LEAST_LIKE and (line := _line(at.astype(float), seconds[at])).min() > 0:
            found[at] = line
    return [float(seconds) for seconds in found]


def _line(at: Floats, times: Floats) -> Floats:
    """Theil and Sen's line through the times: what a few disturbed ones do not move."""
    if len(at) < LEAST_STEPS:
        return np.full(len(at), np.median(times))
    some = np.linspace(0, len(at) - 1, min(len(at), 400)).astype(int)
    first, second = np.triu_indices(len(some), k=1)
    slopes = (times[some][second] - times[some][first]) / (at[some][second] - at[some][first])
    slope = float(np.median(slopes))
    line: Floats = slope * at + float(np.median(times - slope * at))
    return line
