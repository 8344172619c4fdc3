"""What competes: a drafter with a draft length, or plain decoding."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.recorded.schema import CellKey


@dataclass(frozen=True, slots=True)
class Place:
    """Where decoding happens: rows in a batch, prompt tokens of a row."""

    batch: int
    context: int

    @property
    def label(self) -> str:
        return f"B {self.batch:,}, context {self.context:,}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to decode. Plain decoding has no drafter, and γ 0."""

    drafter: DraftSpec | None
    gamma: int

    @property
    def plain(self) -> bool:
        return self.drafter is None

    @property
    def thrift(self) -> tuple[object, ...]:
        """Orders equals: plain decoding first, then the smaller budget, then the shorter draft."""
        if self.drafter is None:
            return (0, 0)
        budget = self.drafter.budget
        if budget is None:  # lookup reads nothing, others everything
            budget = 0 if self.drafter.kind == "lookup" else sys.maxsize
        return (budget, self.gamma, *self.drafter.order)

    @property
    def label(self) -> str:
        return self.drafter.ahead(self.gamma) if self.drafter else "plain decoding"

    def key(self, place: Place) -> CellKey:
        """As a profile names it; not for plain decoding."""
        assert self.drafter is not None, "plain decoding has no cell of its own"
        return CellKey.at(self.drafter, batch=place.batch, context=place.context, gamma=self.gamma)


PLAIN = Candidate(None, 0)


Goal = Literal["throughput", "tpot"]


class Rated(Protocol):
    """A candidate with its speed, predicted or measured."""

    @property
    def place(self) -> Place: ...
    @property
    def candidate(self) -> Candidate: ...
    @property
    def tokens_per_s(self) -> float: ...
    @property
    def tpot(self) -> float:
        """Seconds per output token of a row, after its first."""


@dataclass(frozen=True, slots=True)
class Objective:
    """Tokens per second of the batch, or the time per output token of a row; under a limit of the
    latter, seconds, if there is one."""

    goal: Goal = "throughput"
    max_tpot: float | None = None

    def value(self, rated: Rated) -> float:
        """The larger the better."""
        return rated.tokens_per_s if self.goal == "throughput" else 1 / rated.tpot

    def allows(self, rated: Rated) -> bool:
        return self.max_tpot is None or rated.tpot <= self.max_tpot

    @property
    def label(self) -> str:
        limit = "" if self.max_tpot is None else f" with a TPOT of {self.max_tpot * 1e3:g} ms"
        names = {"throughput": "most tokens/s", "tpot": "least time per output token"}
        return f"{names[self.goal]}{limit and limit + ' at most'}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A drafter's acceptance for one γ, row by row on the same text.

    tokens [rows]: what each row's steps emit; steps [rows]: how many it takes, expected;
    length: the mean acceptance length, Ω; interval: 95% of it over rows, None for a single row;
    per_position [γ]: shares of steps, unconditional; drafting: the share of a row's steps that
    draft at all, which only lookup leaves below 1. Then `length` counts the others, too.
    """

    gamma: int
    tokens: tuple[int, ...]
    steps: tuple[float, ...]
    length: float
    interval: tuple[float, float] | None = None
    per_position: tuple[float, ...] = ()
    drafting: float = 1.0

    def scaled(self, length: float) -> Sequence[float]:
        """Steps by row if the mean acceptance length were `length`."""
        return [steps * self.length / length for steps in self.steps]
