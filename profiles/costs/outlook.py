"""The two context lengths that decide about large batches, for the draft length that pays first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from magicdec.profiles.costs.grid import Setup
from magicdec.profiles.costs.speculation import step_costs
from magicdec.profiles.costs.thresholds import MANY, Asked, break_even, growth_threshold

CONTEXTS = 2.0 ** np.arange(0, 27.25, 0.25)  # tokens, up to thresholds.LONGEST


@dataclass(frozen=True, slots=True)
class Outlook:
    """Tokens of context; None where no context suffices. Both for one γ of the sweep."""

    budget: int | None
    gamma: int
    growth_threshold: float | None  # beyond it speedup rises with the batch
    break_even_context: float | None  # beyond it a large batch gains


def outlooks(setup: Setup, budgets: Sequence[int | None], gammas: tuple[int, ...]) -> list[Outlook]:
    """One for each budget. Each takes hundredths of a second: give a few, not thousands."""
    return [_outlook(setup, budget, gammas) for budget in budgets]


def _outlook(setup: Setup, budget: int | None, gammas: tuple[int, ...]) -> Outlook:
    gamma = _first_to_pay(setup, budget, gammas)
    asked = Asked(
        setup.target, setup.hardware, setup.with_budget(budget), gamma,
        setup.weight_bytes, setup.kv_bytes,
    )  # fmt: skip
    even = break_even(asked, setup.acceptance.tokens_per_step(gamma))
    return Outlook(budget, gamma, growth_threshold(asked), even)


def _first_to_pay(setup: Setup, budget: int | None, gammas: tuple[int, ...]) -> int:
    """The γ with the earliest gain; the least loss at the longest context if there is none."""
    costs = step_costs(
        setup.target, setup.hardware, setup.with_budget(budget), rows=MANY,
        context=CONTEXTS[:, None], gamma=np.asarray(gammas)[None, :],
        weight_bytes=setup.weight_bytes, kv_bytes=setup.kv_bytes,
    )  # fmt: skip
    omegas = np.array([setup.acceptance.tokens_per_step(gamma) for gamma in gammas])
    speedup = costs.speedup(np.asarray(gammas), omegas)
    paying = (speedup > 1).any(axis=1)
    row = int(np.argmax(paying)) if paying.any() else -1
    return gammas[int(np.argmax(speedup[row]))]
