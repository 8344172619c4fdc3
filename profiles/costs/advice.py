"""What would have to hold for a speedup, and the best γ. MagicDec, arXiv 2408.11049, section 3."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from magicdec.profiles.costs.passes import Floats

STEPS_OF_NEWTON = 60  # quadratic except at a double root, which Ω does not have in 0..1


def required_alpha(omega: ArrayLike, gamma: ArrayLike) -> Floats:
    """The α in 0..1, the same at every position, with Ω(γ, α) = omega, where arrays broadcast.

    nan where even α = 1, which gives γ + 1 tokens per step, is too little; 0 where none is needed.
    """
    wanted, drafts = np.broadcast_arrays(
        np.asarray(omega, np.float64), np.asarray(gamma, np.float64)
    )
    found = np.empty(wanted.shape)
    for length in np.unique(drafts):
        here = drafts == length
        found[here] = _invert(wanted[here], int(length))
    return found


def _invert(wanted: Floats, gamma: int) -> Floats:
    """Newton from above on 1 + α + ... + α^γ, which is convex and rises: it cannot overshoot."""
    possible = wanted <= gamma + 1
    alpha = np.where(wanted > 1, 1.0, 0.0)
    for _ in range(STEPS_OF_NEWTON):
        value, slope = np.ones_like(alpha), np.zeros_like(alpha)
        for _ in range(gamma):  # Horner's scheme, with the derivative
            slope = value + alpha * slope
            value = 1 + alpha * value
        step = np.where(possible & (wanted > 1), (value - wanted) / np.maximum(slope, 1), 0.0)
        alpha = np.clip(alpha - step, 0.0, 1.0)
        if np.all(np.abs(step) < 1e-14):
            break
    return np.where(possible, alpha, np.nan)


def best_gamma(speedup: Floats) -> NDArray[np.int64]:
    """Index of the fastest γ on the last axis; the shortest draft of equals."""
    return np.asarray(np.argmax(speedup, axis=-1))
