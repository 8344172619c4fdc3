"""What competes: a drafter with a draft length, or plain decoding."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.storage.schema import CellKey


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
