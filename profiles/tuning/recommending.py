"""From what is known of a context to what to do there, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from magicdec.profiles.tuning.candidate import Candidate, Place
from magicdec.profiles.tuning.choosing import fitting
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.objective import Objective
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.ran import as_ran, rounds_text
from magicdec.profiles.tuning.reasons import measured_reason, memory_reason, reason
from magicdec.profiles.tuning.verdict import Measured, unsteady

Rating = Option | Measured


@dataclass(frozen=True, slots=True)
class Recommendation:
    """speedup: measured, or as predicted where `measured` is None. reachable: False when nothing
    keeps the TPOT limit; the candidate is then the one that comes closest."""

    place: Place
    candidate: Candidate
    speedup: float
    measured: Measured | None
    reachable: bool
    reasons: tuple[str, ...]

    @property
    def speculate(self) -> bool:
        return not self.candidate.plain


def recommend(answer: Answer, objective: Objective) -> Recommendation | None:
    """By the measured ranking where there is one. None when nothing fits or nothing is known."""
    real = answer.verdict(objective)
    predicted = answer.ranking(objective)
    chosen: Rating
    if real is not None:
        chosen, reachable = real.winner or real.nearest, real.winner is not None
    elif predicted is not None:
        chosen, reachable = predicted.winner or predicted.nearest, predicted.winner is not None
    else:
        return None
    measured = chosen if isinstance(chosen, Measured) else None
    said = tuple(_reasons(answer, objective, chosen, reachable))
    return Recommendation(chosen.place, chosen.candidate, chosen.speedup, measured, reachable, said)


def _reasons(
    answer: Answer, objective: Objective, chosen: Rating, reachable: bool
) -> Iterator[str]:
    here = answer.at(chosen.place)
    measured = chosen if isinstance(chosen, Measured) else None
    if not reachable:
        assert objective.max_tpot is not None
        yield (
            f"No setting tried keeps a TPOT of {objective.max_tpot * 1e3:g} ms: the closest, "
            f"{chosen.candidate.label} at {chosen.place.label}, takes {chosen.tpot * 1e3:.1f} ms."
        )
    if not chosen.candidate.plain:
        yield from _how(answer, chosen)
    else:
        yield from _why_not(answer, objective, here, measured)
    ran = [one for one in answer.measured() if one.place == chosen.place]
    if measured is not None and unsteady(ran):
        rounds, spread = len(measured.samples), max(one.spread for one in ran)
        yield (
            f"The {rounds} rounds differ by up to {1 + spread:.2f}×: something else kept the "
            "machine busy; these figures are worth less than their digits."
        )
    misfits = fitting(here)[1]
    yield from memory_reason(misfits, len(here))


def _why_not(
    answer: Answer, objective: Objective, here: list[Option], measured: Measured | None
) -> Iterator[str]:
    """What kept the best draft from paying."""
    drafts = [option for option in fitting(here)[0] if not option.candidate.plain]
    if not drafts:
        return
    best = max(drafts, key=objective.value)
    if measured is not None:
        ran = [
            one for one in answer.measured()
            if one.place == measured.place and not one.candidate.plain
        ]  # fmt: skip
        if ran:
            top = max(ran, key=objective.value)
            slower = max(top.speedups) <= 1
            yield (
                f"The best draft that ran, {top.candidate.label}, reached "
                f"{rounds_text(top.speedups)}: "
                f"{'slower' if slower else 'not faster in every round'}."
            )
            yield from _how(answer, top)
            return
    else:
        yield f"The best draft, {best.candidate.label}, is predicted to reach {best.speedup:.2f}×."
    yield from reason(best)


def _how(answer: Answer, chosen: Rating) -> list[str]:
    """What it rests on."""
    variant = answer.variant_of(chosen)
    if variant is None:
        option = answer.option_of(chosen)
        assert option is not None, "what ran is an option or a variant"
        return _reason(answer, option, chosen)
    assert isinstance(chosen, Measured), "a variant is not predicted"
    ran = (one for one in answer.measured() if one.place == chosen.place)
    beside = next((one for one in ran if one.candidate == variant.base.candidate), None)
    return measured_reason(chosen, beside or corrected(variant.base, answer.factors()))


def _reason(answer: Answer, option: Option, chosen: Rating) -> list[str]:
    """By its own real runs, where it has some."""
    if not isinstance(chosen, Measured):
        return reason(option)
    key = option.candidate.key(option.place)
    steps = (cell.step.select for cell in answer.cells() if cell.key == key)
    return reason(as_ran(option, chosen, next(steps, None) or 0.0), option.length)
