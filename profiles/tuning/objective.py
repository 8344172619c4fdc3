"""What is to be optimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from magicdec.profiles.tuning.candidate import Candidate, Place

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
