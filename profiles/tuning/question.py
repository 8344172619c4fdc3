"""What is asked of a tuning, and what it has found so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magicdec.engine.config import DecodeConfig
from magicdec.profiles.storage.schema import Cell
from magicdec.profiles.survey.surveying import Drafter
from magicdec.profiles.tuning.candidate import Place
from magicdec.profiles.tuning.choosing import Ranking, fitting, predicted_differ, rank
from magicdec.profiles.tuning.objective import Objective
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.verdict import Measured, verdict
from magicdec.profiles.tuning.verifying import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """batches and contexts: what may be chosen among, and what has to be served. A context of None
    is the whole document."""

    batches: tuple[int, ...]
    contexts: tuple[int | None, ...]
    drafters: tuple[Drafter, ...]
    gammas: tuple[int, ...]
    config: DecodeConfig  # of every run, but for drafter and γ
    objective: Objective = field(default_factory=Objective)
    max_memory: int | None = None  # bytes; None: what is free
    verify: int = 3  # candidates, at every context
    repeats: int = 2


@dataclass(slots=True)
class Answer:
    """For one context: what was predicted, what was run, and who wins. Grows as it is found."""

    context: int
    rows: int = 0  # surveyed
    options: list[Option] = field(default_factory=list)
    verification: Verification | None = None

    def ranking(self, objective: Objective) -> Ranking[Option] | None:
        """Of all that fits in memory, in all batches; None when nothing does or is known."""
        able, _ = fitting(self.options)
        return rank(able, objective, predicted_differ) if able else None

    def at(self, place: Place) -> list[Option]:
        return [option for option in self.options if option.place == place]

    def measured(self) -> list[Measured]:
        return [] if self.verification is None else self.verification.measured()

    def verdict(self, objective: Objective) -> Ranking[Measured] | None:
        """None before everybody ran once."""
        found = self.measured()
        return verdict(found, objective) if found else None

    def cells(self) -> list[Cell]:
        return [] if self.verification is None else self.verification.cells()

    def option_of(self, measured: Measured) -> Option:
        """The prediction of what was measured."""
        return next(
            option for option in self.at(measured.place)
            if option.candidate == measured.candidate
        )  # fmt: skip

    def best(self, place: Place, objective: Objective) -> Option | None:
        """The best drafter and γ predicted for a place, plain decoding left out."""
        able = [o for o in self.at(place) if not o.candidate.plain]
        return max(able, key=objective.value, default=None)


Answers = Mapping[int, Answer]
