"""Confidence intervals over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magicdec.profiles.survey.replay import Walk, pooled

LEVEL = 0.95


def length_interval(walks: Sequence[Walk]) -> tuple[float, float] | None:
    """The mean acceptance length's, by jackknife over rows with Student's t; None for one row.

    It tells how far other rows like these would differ, if rows were independent. Rows cut from
    one document are less so than rows of different documents.
    """
    from scipy.special import stdtrit

    rows = len(walks)
    if rows < 2:
        return None
    without = np.array(
        [
            pooled([*walks[:i], *walks[i + 1 :]]).mean_acceptance_length
            for i in range(rows)
        ]
    )  # fmt: skip
    error = float(np.sqrt((rows - 1) / rows * ((without - without.mean()) ** 2).sum()))
    reach = float(stdtrit(rows - 1, (1 + LEVEL) / 2)) * error
    middle, gamma = pooled(walks).mean_acceptance_length, len(walks[0].drafted)
    return max(1.0, middle - reach), min(gamma + 1.0, middle + reach)
