"""Policies: how many tokens a step drafts.

A policy may look at whatever happened before the step. Given the text so far, a step emits tokens
distributed as the target's for every γ, so that it also does for a γ chosen by the past. What
a policy must not see is the step itself; how drafting may end within a step is `Adaptive`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from magicdec.engine.errors import require
from magicdec.engine.gamma.history import History

#: The largest γ that is chosen by itself: gains beyond are small, losses are not.
MOST_CHOSEN = 8


@dataclass(frozen=True, slots=True)
class Situation:
    """Before a step."""

    most: int  # γ that the run has room for
    rows: int
    context: float  # tokens of a row so far, mean over rows
    left: float  # tokens that a row may still emit, mean over rows
    unprepared: int = 0  # rows whose draft KV is not selected yet
    history: History = field(default_factory=History)


class GammaPolicy(Protocol):
    @property
    def name(self) -> str:
        """For reports: fixed, auto, ..."""

    @property
    def stop(self) -> float | None:
        """A row's draft ends where the chance that all of it is accepted falls below this."""

    @property
    def source(self) -> str:
        """What it decides by; empty where the name says all."""

    def gamma(self, now: Situation) -> int:
        """Draft tokens of the next step, at most `now.most`; 0 is plain decoding."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many as there is room for, always."""

    name: str = field(default="fixed", init=False)
    stop: float | None = field(default=None, init=False)
    source: str = field(default="", init=False)

    def gamma(self, now: Situation) -> int:
        return now.most


FIXED = Fixed()


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Drafts until it is unlikely that the next token would count.

    One more draft token is worth the chance that all before it are accepted, and costs a draft
    step: it pays while that chance exceeds the share of a draft step in the time that a token
    takes. The chance is taken to be the product of the draft's own probabilities of its tokens.

    This is exact. Token x_i is drawn, kept and verified before its probability decides whether
    x_{i+1} is drafted. So for every text x_1..x_i it is settled by that text alone whether the
    next token is a draft's or the target's own, and the target's distribution results either way.
    To drop x_i itself for being unlikely would not be: what is left would not be distributed as q.
    A row looks at its own tokens only, so that its text does not depend on its batch mates.
    """

    stop: float = 0.4  # a draft step at .25 of a plain one, and 1.6 tokens in the time of that
    source: str = ""
    name: str = field(default="adaptive", init=False)

    def __post_init__(self) -> None:
        require(0.0 < self.stop < 1.0, f"adaptive stop must be between 0 and 1, got {self.stop}")

    def gamma(self, now: Situation) -> int:
        return now.most


@dataclass(frozen=True, slots=True)
class Entry:
    """γ from this many rows and this much context on, up to the next entry."""

    batch: int
    context: int
    gamma: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """γ by batch and context: of the entries for the largest batch that is not above the rows, the
    one of the largest context that is not above theirs; below all of them the smallest counts.
    """

    entries: tuple[Entry, ...]
    source: str = ""
    name: str = field(default="schedule", init=False)
    stop: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        require(bool(self.entries), "a schedule needs one entry or more")
        places = [(entry.batch, entry.context) for entry in self.entries]
        twice = next((p for p in places if places.count(p) > 1), None) if _twice(places) else None
        require(twice is None, f"a schedule has two entries for batch and context {twice}")

    @property
    def most(self) -> int:
        return max(entry.gamma for entry in self.entries)

    def gamma(self, now: Situation) -> int:
        batch = _below({entry.batch for entry in self.entries}, now.rows)
        fitting = {entry.context: entry.gamma for entry in self.entries if entry.batch == batch}
        return min(now.most, fitting[_below(fitting, now.context)])


def _twice(places: list[tuple[int, int]]) -> bool:
    return len(set(places)) < len(places)


def _below(values: Iterable[int], bound: float) -> int:
    """The largest value that is not above `bound`, or the smallest."""
    ranked = sorted(values)
    return ranked[max(0, bisect_right(ranked, bound) - 1)]
