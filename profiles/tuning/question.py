"""What is asked of a tuning, and what it has found so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.costs.step_times import Factors
from magicdec.profiles.recorded.schema import Cell
from magicdec.profiles.tuning.candidate import Objective, Place, Rated
from magicdec.profiles.tuning.correcting import corrected, factors
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.ranking import (
    Measured,
    Ranking,
    fitting,
    predicted_differ,
    rank,
    verdict,
)
from magicdec.profiles.tuning.variants import Change, Variant
from magicdec.profiles.tuning.verifying import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """batches and contexts: what may be chosen among, and what has to be served. A context of None
    is the whole document."""

    batches: tuple[int, ...]
    contexts: tuple[int | None, ...]
    drafters: tuple[DraftSpec, ...]
    gammas: tuple[int, ...]
    config: DecodeConfig  # of every run, but for drafter and γ
    objective: Objective = field(default_factory=Objective)
    max_memory: int | None = None  # bytes; None: what is free
    verify: int = 3  # candidates, at every context
    repeats: int = 2
    time_limit: float | None = None  # seconds of all real runs
    changes: tuple[Change, ...] = ()  # of the best of these candidates, to be run besides


@dataclass(slots=True)
class Answer:
    """For one context: what was predicted, what was run, and who wins. Grows as it is found.

    around: the best drafts at other places, by the acceptance here; of a single place only.
    """

    context: int
    rows: int = 0  # surveyed
    options: list[Option] = field(default_factory=list)
    verifications: list[Verification] = field(default_factory=list)
    around: list[Option] = field(default_factory=list)

    def ranking(self, objective: Objective) -> Ranking[Option] | None:
        """Of all that fits in memory, in all batches; None when nothing does or is known."""
        return _ranking(self.options, objective)

    def factors(self) -> Factors:
        """What the runs so far say of the predicted step times."""
        return factors([pair for each in self.verifications for pair in each.seen()])

    def next_place(self, objective: Objective) -> Place | None:
        """Where real runs are worth their time: where the best is predicted, or, as long as the
        runs so far make another place look better than what they found, there. None when they do
        not.
        """
        here = {each.place for each in self.verifications}
        found, now = self.verdict(objective), self.factors()
        options = [corrected(o, now) for o in self.options if o.place not in here]
        ranking = _ranking(options, objective)
        if ranking is None:
            return None
        if not here:
            return (ranking.winner or ranking.nearest).place
        if found is None or ranking.winner is None:
            return None
        better = found.winner is None or objective.value(ranking.winner) > objective.value(
            found.winner
        )
        return ranking.winner.place if better else None

    def at(self, place: Place) -> list[Option]:
        return [option for option in self.options if option.place == place]

    def measured(self) -> list[Measured]:
        return [one for each in self.verifications for one in each.measured()]

    def verdict(self, objective: Objective) -> Ranking[Measured] | None:
        """None before a draft ran: plain decoding alone decides nothing."""
        found = [one for each in self.verifications if each.tried for one in each.measured()]
        return verdict(found, objective) if found else None

    def cells(self) -> list[Cell]:
        return [cell for each in self.verifications for cell in each.cells()]

    def option_of(self, rated: Rated) -> Option | None:
        """The prediction of what was measured; None of a variant."""
        here = self.at(rated.place)
        return next((option for option in here if option.candidate == rated.candidate), None)

    def variant_of(self, rated: Rated) -> Variant | None:
        """How what was measured came about; None of what is predicted."""
        tried = (variant for each in self.verifications for variant in each.variants)
        return next(
            (one for one in tried if (one.place, one.candidate) == (rated.place, rated.candidate)),
            None,
        )

    def best(self, place: Place, objective: Objective) -> Option | None:
        """The best drafter and γ for a place by predictions and runs, plain decoding left out."""
        now = self.factors()
        able = [corrected(o, now) for o in self.at(place) if not o.candidate.plain]
        return max(able, key=objective.value, default=None)


def _ranking(options: Sequence[Option], objective: Objective) -> Ranking[Option] | None:
    able, _ = fitting(options)
    return rank(able, objective, predicted_differ) if able else None
