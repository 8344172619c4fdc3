"""Predictions brought into line with the step times of runs at the same place.

A calibration describes the machine over a wide grid, and on another day. A real run tells what the
steps take here and now, so that each run makes it clearer which candidate deserves the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from magicdec.engine.draft_spec import LOOKUP, DraftSpec
from magicdec.profiles.costs import step_times
from magicdec.profiles.costs.step_times import Factors, Seen
from magicdec.profiles.tuning.candidate import Objective
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.ranking import fitting

DRIFT = 1.25  # a calibration that is off by more deserves a word
MOST_ALIKE = 2  # runs of one drafter: neighbouring γ say little about other drafters


def factors(seen: Sequence[tuple[Option, Seen]]) -> Factors:
    """From runs beside their predictions."""
    pairs = ((_passes_of(option.candidate.drafter), option.price, took) for option, took in seen)
    return step_times.factors(pairs, apart=(LOOKUP,))


def _passes_of(drafter: DraftSpec | None) -> str:
    """What drafts are alike in: who drafts, with which weights. Lookup runs no pass at all."""
    if drafter is None or drafter.kind == "lookup":
        return LOOKUP
    return f"{drafter.draft} {drafter.draft_weights}"


def drift(found: Factors) -> float | None:
    """How many times as long a plain step takes as was calibrated; None within DRIFT."""
    return None if 1 / DRIFT <= found.plain <= DRIFT else found.plain


def corrected(option: Option, found: Factors) -> Option:
    """The option at the corrected step times; its acceptance and its selection stay."""
    price, gamma = option.price, option.candidate.gamma
    changed = found.corrected(price, _passes_of(option.candidate.drafter))
    share = changed.step(gamma) / price.step(gamma)
    stepping = option.seconds - option.selection_s
    seconds = stepping * share + option.selection_s
    return replace(
        option, price=changed, seconds=seconds,
        plain_seconds=option.plain_seconds * found.plain,
        tpot=option.tpot * seconds / option.seconds,
    )  # fmt: skip


def next_to_run(
    options: Iterable[Option], seen: Sequence[tuple[Option, Seen]], objective: Objective
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
