"""Confidence intervals over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from magicdec.profiles.acceptance.rates import AcceptanceCounts, pooled

LEVEL = 0.95


def length_interval(walks: Sequence[AcceptanceCounts]) -> tuple[float, float] | None:
    """The mean acceptance length's, over rows with Student's t; None for one row.

    A length Ω lies between 1 and γ + 1, and often near the end. The interval is therefore
    symmetric in the logit of (Ω - 1) / γ, with the jackknife's standard error carried over by the
    delta method: it stays inside without being cut, and reaches further to the roomy side. Rows
    that are all alike have an interval of no width.

    It tells how far other rows like these would differ, if rows were independent. Rows cut from
    one document are less so than rows of different documents.
    """
    from scipy.special import expit, logit, stdtrit

    rows = len(walks)
    if rows < 2:
        return None
    gamma = len(walks[0].drafted)
    shares = np.array([_share([*walks[:i], *walks[i + 1 :]], gamma) for i in range(rows)])
    share = _share(walks, gamma)
    error = float(np.sqrt((rows - 1) / rows * ((shares - shares.mean()) ** 2).sum()))
    if error < 1e-9 or not 0 < share < 1:  # at an end all rows are at it
        return 1 + gamma * share, 1 + gamma * share
    reach = float(stdtrit(rows - 1, (1 + LEVEL) / 2)) * error / (share * (1 - share))
    low, high = expit(logit(share) - reach), expit(logit(share) + reach)
    return 1 + gamma * float(low), 1 + gamma * float(high)


def _share(walks: Sequence[AcceptanceCounts], gamma: int) -> float:
    """(Ω - 1) / γ of the rows together."""
    return (pooled(walks).mean_length - 1) / gamma
