"""The two context lengths that decide about speculation at large batches.

Of affine pass times T = a + c·B only the slopes c matter at large B. Speedup rises with the batch
iff γ(c_T − c_D) > c_V − c_T: what the drafts save outweighs what verifying adds. It is above 1 at
large B iff Ω·c_T > γ·c_D + c_V. Both hold from some context on, and they are different questions:
in between, speedup still rises with the batch towards a limit below 1, or falls towards one above.
MagicDec (arXiv 2408.11049), section 3, calls the first the inflection length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from magicdec.profiles.costs.grid import Setup
from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.costs.step_times import StepTimes

MANY = 1e9  # rows; what does not grow with them no longer counts
LONGEST = 2.0**27  # tokens
CLOSE = 0.5  # tokens


@dataclass(frozen=True, slots=True)
class Asked:
    """A way of speculating whose thresholds are wanted."""

    target: ModelShape
    hardware: Hardware
    drafting: Drafting
    gamma: int
    weight_bytes: float = 2
    kv_bytes: float = 2

    def slopes(self, context: float) -> StepTimes[float]:
        """What one more row adds, at large batches."""
        [times] = step_costs(
            self.target, self.hardware, self.drafting, rows=MANY, context=context,
            gamma=self.gamma, weight_bytes=self.weight_bytes, kv_bytes=self.kv_bytes,
        ).cells()  # fmt: skip
        return StepTimes(*(part / MANY for part in times.parts))


def growth_threshold(asked: Asked) -> float | None:
    """The context in tokens above which speedup rises with the batch; None if there is none."""

    def gain(context: float) -> float:
        c = asked.slopes(context)
        return asked.gamma * (c.plain - c.draft) - (c.verify - c.plain)

    return _first_above_zero(gain)


def break_even(asked: Asked, omega: float) -> float | None:
    """The context in tokens above which speedup exceeds 1 at large batches; None if there is none.

    `omega` is Ω, tokens per step (of `AcceptanceRates`).
    """

    def gain(context: float) -> float:
        c = asked.slopes(context)
        return omega * c.plain - asked.gamma * c.draft - c.verify

    return _first_above_zero(gain)


def _first_above_zero(gain: Callable[[float], float]) -> float | None:
    """By bisection: 0 if `gain` starts above zero, None if it never gets there."""
    if gain(0.0) > 0:
        return 0.0
    low, high = 0.0, 1.0
    while gain(high) <= 0:
        if high >= LONGEST:
            return None
        low, high = high, 2 * high
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) > 0 else (middle, high)
    return high


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
