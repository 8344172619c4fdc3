"""The times of a step, and their correction by steps that were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import numpy as np  # readers of profiles do without
    from numpy.typing import NDArray

T_co = TypeVar("T_co", covariant=True)
Number = TypeVar("Number", float, "NDArray[np.float64]")
Axis = float | Any  # or an array


@dataclass(frozen=True, slots=True)
class StepTimes(Generic[T_co]):
    """Seconds: T_T of a plain step, T_D of one draft step, T_V of a verify pass, and what else a
    speculative step takes: to choose entries, and the rest. Numbers, arrays of them, or None for
    what was not measured.

    What is priced has the searches of draft steps in `draft`; of what was measured the whole select
    phase is in `select`.
    """

    plain: T_co
    draft: T_co
    verify: T_co
    select: T_co
    rest: T_co

    @property
    def parts(self) -> tuple[T_co, ...]:
        return self.plain, self.draft, self.verify, self.select, self.rest

    def step(self: StepTimes[Number], gamma: Axis) -> Number:
        """A step that drafts so many tokens; γ 0 is a plain one."""
        if isinstance(gamma, int) and not gamma:
            return self.plain
        step: Number = gamma * self.draft + self.verify + self.rest + self.select
        return step

    def speedup(self: StepTimes[Number], gamma: Axis, omega: Axis) -> Number:
        """T_T·Ω / (γ·T_D + T_V + ...)."""
        speedup: Number = self.plain * omega / self.step(gamma)
        return speedup

    def needed(self: StepTimes[Number], gamma: Axis) -> Number:
        """Ω above which speculation is faster than plain decoding."""
        needed: Number = self.step(gamma) / self.plain
        return needed


Seen = StepTimes[float | None]  # in steps that were measured
NOT_MEASURED: Seen = StepTimes(None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class Factors:
    """Measured by predicted seconds; drafts by what they are alike in."""

    plain: float = 1.0
    verify: float = 1.0
    draft: float = 1.0
    by_passes: dict[str, float] = field(default_factory=dict)

    def corrected(self, times: StepTimes[float], passes: str) -> StepTimes[float]:
        """Times as they should be measured. passes: of those that draft."""
        return replace(
            times, plain=times.plain * self.plain, verify=times.verify * self.verify,
            draft=times.draft * self.by_passes.get(passes, self.draft),
        )  # fmt: skip


def factors(
    seen: Iterable[tuple[str, StepTimes[float], Seen]], apart: Sequence[str] = ()
) -> Factors:
    """From steps beside their prediction, each with the passes that draft: geometric means.

    Passes that were not measured are taken to be off as plain steps are: what makes a machine
    slower than it was on the day of its calibration slows all of them. apart: passes that tell
    nothing of others.
    """
    found = list(seen)
    drafts: dict[str, list[float]] = {}
    for passes, priced, took in found:
        if took.draft and priced.draft:
            drafts.setdefault(passes, []).append(took.draft / priced.draft)
    every = [ratio for passes, ratios in drafts.items() if passes not in apart for ratio in ratios]
    general = _mean([took.plain / priced.plain for _, priced, took in found if took.plain])
    verify = [
        took.verify / priced.verify for _, priced, took in found if took.verify and priced.verify
    ]
    return Factors(
        general, _mean(verify, general), _mean(every, general),
        {passes: _mean(ratios) for passes, ratios in drafts.items()},
    )  # fmt: skip


def _mean(ratios: Sequence[float], otherwise: float = 1.0) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else otherwise
