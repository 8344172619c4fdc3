"""What would be predicted around a single place, for its map of break-even."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magicdec.profiles.tuning.candidate import Candidate, Place
from magicdec.profiles.tuning.evidence import Evidence
from magicdec.profiles.tuning.objective import Objective
from magicdec.profiles.tuning.pricing import Memory, Option, Prices, price

FACTORS = (0.25, 0.5, 1, 2, 4)
UNLIMITED = Memory(0, 0)
Known = Sequence[tuple[Candidate, Evidence]]


def places_around(place: Place, most_context: int) -> list[Place]:
    """A quarter to four times of both; the context not beyond what the model was trained for."""
    batches = sorted({max(1, round(place.batch * factor)) for factor in FACTORS})
    contexts = {max(1, round(place.context * factor)) for factor in FACTORS}
    within = sorted(c for c in contexts if c <= max(most_context, place.context))
    return [Place(batch, context) for batch in batches for context in within]


def leading(options: Sequence[Option], objective: Objective) -> set[Candidate]:
    """The best drafter for each γ: all of them at all places would take seconds."""
    best: dict[int, Option] = {}
    for option in sorted(options, key=objective.value):
        best[option.candidate.gamma] = option
    return {option.candidate for option in best.values() if not option.candidate.plain}


def best_around(
    known: Known, place: Place, objective: Objective, prices: Prices
) -> Option | None:  # fmt: skip
    """The best draft at `place` with the acceptance of another context; its memory is left open.

    None where every draft would read the whole context.
    """
    options = [
        price(candidate, place, replace(evidence, interval=None), prices, UNLIMITED)
        for candidate, evidence in known
        if candidate.drafter is not None and (candidate.drafter.budget or 0) < place.context
    ]
    return max(options, key=objective.value, default=None)
