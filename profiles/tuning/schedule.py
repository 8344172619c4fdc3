"""How long rows take in the slots of a batch, when each needs its own number of steps.

A step's time depends on how many rows take part. Near the end slots stay empty: rows with less
luck finish later, so that a batch needs more steps than its rows on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from magicdec.profiles.costs.slots import taking_part


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of all, and of each row from its first step to its last."""

    seconds: float
    rows: tuple[float, ...]


def schedule(steps: Sequence[float], step_s: Sequence[float], slots: int) -> Run:
    """Rows take free slots in order.

    steps [rows]: how many each needs, fractions for expected numbers; step_s [at least slots]:
    seconds of a step with 1, 2, ... rows.
    """
    left, took, now = list(steps), [0.0] * len(steps), 0.0
    for active in taking_part(left, slots):
        count = min(left[row] for row in active)
        spent = count * step_s[len(active) - 1]
        now += spent
        for row in active:
            left[row] -= count
            took[row] += spent
    return Run(now, tuple(took))


def stretched(values: ArrayLike, rows: int) -> NDArray[np.float64]:
    """`rows` values, spread as `values` are: what more rows like these would need."""
    places = (np.arange(rows) + 0.5) / rows
    return np.quantile(np.asarray(values, np.float64), places)
