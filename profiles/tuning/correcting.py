"""Predictions brought into line with the step times of runs at the same place.

A calibration describes the machine over a wide grid, and on another day. A real run tells what the
steps take here and now, so that each run makes it clearer which candidate deserves the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from magicdec.engine.draft_spec import LOOKUP, DraftSpec
from magicdec.profiles.storage.schema import StepTimes
from magicdec.profiles.tuning.choosing import fitting
from magicdec.profiles.tuning.objective import Objective
from magicdec.profiles.tuning.pricing import Option

DRIFT = 1.25  # a calibration that is off by more deserves a word
MOST_ALIKE = 2  # runs of one drafter: neighbouring γ say little about other drafters


@dataclass(frozen=True, slots=True)
class Factors:
    """Measured by predicted seconds; drafts by `_passes_of`."""

    plain: float = 1.0
    verify: float = 1.0
    draft: float = 1.0
    by_passes: dict[str, float] = field(default_factory=dict)


def factors(seen: Sequence[tuple[Option, StepTimes]]) -> Factors:
    """From runs beside their predictions: geometric means.

    Passes that were not measured are taken to be off as plain steps are: what makes a machine
    slower than it was on the day of its calibration slows all of them.
    """
    drafts: dict[str, list[float]] = {}
    for option, times in seen:
        drafter = option.candidate.drafter
        if drafter is not None and times.draft and option.price.draft:
            drafts.setdefault(_passes_of(drafter), []).append(times.draft / option.price.draft)
    verify = [
        times.verify / option.price.verify for option, times in seen
        if not option.candidate.plain and times.verify and option.price.verify
    ]  # fmt: skip
    plain = [times.plain / option.price.plain for option, times in seen if times.plain]
    every = [ratio for kind, ratios in drafts.items() if kind != LOOKUP for ratio in ratios]
    general = _mean(plain)
    return Factors(
        general, _mean(verify, general), _mean(every, general),
        {kind: _mean(ratios) for kind, ratios in drafts.items()},
    )  # fmt: skip


def _passes_of(drafter: DraftSpec) -> str:
    """What drafts are alike in: who drafts, with which weights. Lookup runs no pass at all."""
    return LOOKUP if drafter.kind == "lookup" else f"{drafter.draft} {drafter.draft_weights}"


def drift(found: Factors) -> float | None:
    """How many times as long a plain step takes as was calibrated; None within DRIFT."""
    return None if 1 / DRIFT <= found.plain <= DRIFT else found.plain


def corrected(option: Option, found: Factors) -> Option:
    """The option at the corrected step times; its acceptance and its selection stay."""
    price, gamma = option.price, option.candidate.gamma
    drafter = option.candidate.drafter
    draft = found.by_passes.get(_passes_of(drafter), found.draft) if drafter else 1.0
    changed = replace(
        price, plain=price.plain * found.plain, draft=price.draft * draft,
        verify=price.verify * found.verify,
    )  # fmt: skip
    share = changed.step(gamma) / price.step(gamma)
    stepping = option.seconds - option.selection_s
    seconds = stepping * share + option.selection_s
    return replace(
        option, price=changed, seconds=seconds,
        plain_seconds=option.plain_seconds * found.plain,
        tpot=option.tpot * seconds / option.seconds,
    )  # fmt: skip


def next_to_run(
    options: Iterable[Option], seen: Sequence[tuple[Option, StepTimes]], objective: Objective
) -> Option | None:
    """The most promising draft that has not run, by what the runs so far say of the step times.

    None when all that fits has run, or MOST_ALIKE of each drafter. Those within the TPOT limit go
    first.
    """
    found = factors(seen)
    ran = [option.candidate for option, _ in seen]
    left = [
        option for option in fitting(list(options))[0]
        if not option.candidate.plain and option.candidate not in ran
        and sum(one.drafter == option.candidate.drafter for one in ran) < MOST_ALIKE
    ]  # fmt: skip

    def promise(option: Option) -> tuple[bool, float]:
        here = corrected(option, found)
        return objective.allows(here), objective.value(here)

    return max(left, key=promise, default=None)


def _mean(ratios: Sequence[float], otherwise: float = 1.0) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else otherwise
