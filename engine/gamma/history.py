"""What a run has shown so far: acceptance by draft position, and what steps took."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

#: What a step showed counts this much less with every step after it: texts change.
DECAY = 0.98
#: Draft tokens that the first guess of a rate weighs as much as.
PRIOR = 8.0
#: Steps after which a time is out of date, because rows have grown and others left.
FRESH = 64
#: The lower median of so many times counts: what else the machine does only adds to a time.
KEPT = 6


@dataclass(frozen=True, slots=True)
class Timed:
    step: int
    seconds: float


class History:
    """Of draft tokens only those count that the target judged, which are a row's accepted ones and
    the first that was rejected: what was drafted beyond must not bear on what is drafted next, as
    its random numbers are used again (`sampling.Noise`).
    """

    def __init__(self) -> None:
        self.steps = 0
        self._judged: list[float] = []
        self._accepted: list[float] = []
        self._times: dict[tuple[int, int], deque[Timed]] = {}

    def add(
        self, gamma: int, asked: Sequence[int], accepted: Sequence[int], seconds: float
    ) -> None:
        """A step ended. asked: what each row might draft; accepted: how much of that was.

        A row that could not propose as much as it might counts as rejected there: Ω lacks it too.
        """
        self.steps += 1
        self._judged = [DECAY * n for n in self._judged]
        self._accepted = [DECAY * n for n in self._accepted]
        missing = max(asked, default=0) - len(self._judged)
        self._judged += [0.0] * missing
        self._accepted += [0.0] * missing
        for most, count in zip(asked, accepted, strict=True):
            for position in range(min(count + 1, most)):
                self._judged[position] += 1
                self._accepted[position] += position < count
        times = self._times.setdefault((_size(len(asked)), gamma), deque(maxlen=KEPT))
        times.append(Timed(self.steps, seconds))

    def rates(self, first: float, count: int) -> tuple[float, ...]:
        """Conditional acceptance of `count` positions. first: the guess before anything is known;
        a position that was hardly judged is taken to be like the one before it."""
        rates: list[float] = []
        for position in range(count):
            known = position < len(self._judged)
            judged = self._judged[position] if known else 0.0
            accepted = self._accepted[position] if known else 0.0
            first = (accepted + PRIOR * first) / (judged + PRIOR)
            rates.append(first)
        return tuple(rates)

    def seconds(self, rows: int, gamma: int) -> float | None:
        """Of a step of about so many rows; None when none was timed lately."""
        recent = [timed.seconds for timed in self._recent(rows, gamma)]
        return statistics.median_low(recent) if recent else None

    def tries(self, rows: int, gamma: int) -> int:
        """How many such steps were timed lately."""
        return len(self._recent(rows, gamma))

    def _recent(self, rows: int, gamma: int) -> list[Timed]:
        times = self._times.get((_size(rows), gamma), ())
        return [timed for timed in times if self.steps - timed.step < FRESH]


def _size(rows: int) -> int:
    """1, 2-3, 4-7, ... rows share their times, so that not every row that ends costs new ones."""
    return rows.bit_length()
