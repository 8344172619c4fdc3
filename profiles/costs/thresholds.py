"""The two context lengths that decide about speculation at large batches.

Of affine pass times T = a + c·B only the slopes c matter at large B. Speedup rises with the batch
iff γ(c_T − c_D) > c_V − c_T: what the drafts save outweighs what verifying adds. It is above 1 at
large B iff Ω·c_T > γ·c_D + c_V. Both hold from some context on, and they are different questions:
in between, speedup still rises with the batch towards a limit below 1, or falls towards one above.
MagicDec (arXiv 2408.11049), section 3, calls the first the inflection length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.shapes import ModelShape
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
