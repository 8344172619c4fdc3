"""The map of break-even of a tuning: over its grid, or around its single place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from magicdec.cli.heatmap import Map
from magicdec.cli.tune_session import TuneOutcome
from magicdec.profiles.tuning.candidate import Place
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.question import Answer


def speedup_map(outcome: TuneOutcome) -> tuple[Map, str, str] | None:
    """The map, its title and what it rests on. None where there is no map, as after an interrupt
    in the middle of a survey."""
    answers = [answer for answer in outcome.answers if answer.options]
    if not answers:
        return None
    batches, contexts = outcome.question.batches, [answer.context for answer in answers]
    basis = ["at the step times of the runs"] if any(a.verifications for a in answers) else []
    if len(batches) * len(contexts) > 1:
        title, best = "predicted speedup of the best draft", _grid(outcome, answers)
    else:
        title, best = "where it would pay", _around(answers[0])
        basis.insert(0, f"with the acceptance of context {contexts[0]:,}")
        places = [option.place for option in answers[0].around]
        batches, contexts = (
            tuple(sorted({place.batch for place in places})),
            sorted({place.context for place in places}),
        )
    drawn = _drawn(batches, contexts, best)
    if drawn is None:
        return None
    return drawn, f"{title}; batch down, context across", ", ".join(basis)


Best = Callable[[Place], Option | None]


def _grid(outcome: TuneOutcome, answers: Sequence[Answer]) -> Best:
    by_context = {answer.context: answer for answer in answers}
    return lambda place: by_context[place.context].best(place, outcome.question.objective)


def _around(answer: Answer) -> Best:
    now = answer.factors()
    return {option.place: corrected(option, now) for option in answer.around}.get


def _drawn(batches: Sequence[int], contexts: Sequence[int], best: Best) -> Map | None:
    shape = (len(batches), len(contexts))
    speedup, fits = np.zeros(shape), np.zeros(shape, np.bool_)
    for row, batch in enumerate(batches):
        for column, context in enumerate(contexts):
            option = best(Place(batch, context))
            if option is None:
                return None
            speedup[row, column], fits[row, column] = option.speedup, option.memory.fits
    return Map(tuple(batches), tuple(contexts), speedup, fits) if speedup.size else None
