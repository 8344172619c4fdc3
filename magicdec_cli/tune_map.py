"""The map of break-even of a tuning: over its grid, or around its single place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import geometric_mean

import numpy as np

from magicdec.cli.heatmap import Map
from magicdec.cli.tune_session import TuneOutcome
from magicdec.profiles.tuning.candidate import Place
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.verdict import Measured


def speedup_map(outcome: TuneOutcome) -> tuple[Map, str, str] | None:
    """The map, its title and what it rests on. None where there is no map, as after an interrupt
    in the middle of a survey."""
    answers = [answer for answer in outcome.answers if answer.options]
    if not answers:
        return None
    batches, contexts = outcome.question.batches, [answer.context for answer in answers]
    ran = {place: found.speedup for place, found in _ran(outcome).items()}
    basis = []
    if ran:
        basis = ["measured where drafts ran, elsewhere predicted and scaled to those runs"]
    if len(batches) * len(contexts) > 1:
        title, best = "speedup" if ran else "predicted speedup", _grid(outcome, answers)
    else:
        title, best = "where it would pay", _around(answers[0])
        basis.insert(0, f"with the acceptance of context {contexts[0]:,}")
        places = [option.place for option in answers[0].around]
        batches, contexts = (
            tuple(sorted({place.batch for place in places})),
            sorted({place.context for place in places}),
        )
    drawn = _drawn(batches, contexts, best, ran, _scale(answers))
    if drawn is None:
        return None
    return drawn, f"{title}, best draft of each place; batch down, context across", "; ".join(basis)


Best = Callable[[Place], Option | None]


def _ran(outcome: TuneOutcome) -> dict[Place, Measured]:
    """The draft that is recommended at a place, else the best that ran there."""
    best: dict[Place, Measured] = {}
    drafts = [
        one for answer in outcome.answers for one in answer.measured() if not one.candidate.plain
    ]
    for one in sorted(drafts, key=outcome.question.objective.value):
        best[one.place] = one
    for found in outcome.recommendations:
        if found is not None and found.measured is not None and found.speculate:
            best[found.place] = found.measured
    return best


def _scale(answers: Sequence[Answer]) -> float:
    """By how much the runs were faster than what their step times make of the predictions."""
    ratios = []
    for answer in answers:
        now = answer.factors()
        for one in answer.measured():
            option = answer.option_of(one)
            if option is not None and not one.candidate.plain and one.speedup > 0:
                ratios.append(one.speedup / corrected(option, now).speedup)
    return geometric_mean(ratios) if ratios else 1.0


def _grid(outcome: TuneOutcome, answers: Sequence[Answer]) -> Best:
    by_context = {answer.context: answer for answer in answers}
    return lambda place: by_context[place.context].best(place, outcome.question.objective)


def _around(answer: Answer) -> Best:
    now = answer.factors()
    return {option.place: corrected(option, now) for option in answer.around}.get


def _drawn(
    batches: Sequence[int], contexts: Sequence[int], best: Best, ran: Mapping[Place, float],
    scale: float,
) -> Map | None:  # fmt: skip
    shape = (len(batches), len(contexts))
    speedup, fits = np.zeros(shape), np.zeros(shape, np.bool_)
    for row, batch in enumerate(batches):
        for column, context in enumerate(contexts):
            place = Place(batch, context)
            option = best(place)
            if option is None:
                return None
            speedup[row, column] = ran.get(place, option.speedup * scale)
            fits[row, column] = option.memory.fits
    return Map(tuple(batches), tuple(contexts), speedup, fits) if speedup.size else None
