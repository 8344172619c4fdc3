"""The ranking, and who wins it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from magicdec.profiles.recorded.schema import Repeat, Sample
from magicdec.profiles.tuning.candidate import Candidate, Objective, Place, Rated
from magicdec.profiles.tuning.pricing import Option

TIE = 0.02  # a lead below this is not worth a larger budget or a longer draft
LEVEL = 0.95
T = TypeVar("T", bound=Rated)


@dataclass(frozen=True, slots=True)
class Ranking(Generic[T]):
    """ordered: best first, those beyond the TPOT limit last. winner: None when all are beyond it;
    `nearest` is then the one that comes closest. as_good: not to be told from the best."""

    ordered: tuple[T, ...]
    winner: T | None
    nearest: T
    as_good: tuple[T, ...]


def rank(rated: Sequence[T], objective: Objective, differ: Callable[[T, T], bool]) -> Ranking[T]:
    """At least one is needed. `differ` says whether a difference is more than chance.

    The winner is the best one; or, of those that are as good as the best and less than TIE behind,
    the one with the smallest budget and the shortest draft, plain decoding above all.
    """
    allowed = [one for one in rated if objective.allows(one)]
    beyond = [one for one in rated if not objective.allows(one)]

    def by_value(one: T) -> tuple[object, ...]:
        return (-objective.value(one), one.place.batch, one.candidate.thrift)

    ordered = sorted(allowed, key=by_value) + sorted(beyond, key=lambda one: one.tpot)
    nearest = min(rated, key=lambda one: one.tpot)
    if not allowed:
        return Ranking(tuple(ordered), None, nearest, ())
    best = ordered[0]
    as_good = [one for one in ordered[: len(allowed)] if one is best or not differ(one, best)]
    enough = objective.value(best) * (1 - TIE)
    close = [one for one in as_good if objective.value(one) >= enough]
    winner = min(close, key=lambda one: (one.place.batch, one.candidate.thrift))
    return Ranking(tuple(ordered), winner, nearest, tuple(as_good))


def predicted_differ(a: Option, b: Option) -> bool:
    """Whether the rows agree on which is faster: a paired t-test on the logarithms of their times.

    Paired, because rows differ far more from each other than one row's times under two drafters.
    Without two rows of the same place nothing can be said against the predictions.
    """
    from scipy.special import stdtrit

    rows = len(a.row_seconds)
    if a.place != b.place or rows < 2 or rows != len(b.row_seconds):
        return True
    pairs = [(x, y) for x, y in zip(a.row_seconds, b.row_seconds, strict=True) if x and y]
    if len(pairs) < 2:
        return True
    ratios = np.log([x / y for x, y in pairs])
    error = float(ratios.std(ddof=1)) / len(pairs) ** 0.5
    reach = float(stdtrit(len(pairs) - 1, (1 + LEVEL) / 2)) * error
    return bool(abs(ratios.mean()) > reach)


def fitting(options: Sequence[Option]) -> tuple[list[Option], list[Option]]:
    """Those that fit in memory, and the others."""
    return [o for o in options if o.memory.fits], [o for o in options if not o.memory.fits]


MANY = 4  # rounds
UNSTEADY = 0.15  # spread of rounds that calls for more of them


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's real runs, one per round; `plain` are plain decoding's of the same rounds.

    tpots: seconds, as `samples`. At least one round is needed.
    """

    place: Place
    candidate: Candidate
    samples: tuple[Sample, ...]
    tpots: tuple[float, ...]
    plain: tuple[Sample, ...]

    @property
    def tokens_per_s(self) -> float:
        return statistics.median(self._rates)

    @property
    def tpot(self) -> float:
        return statistics.median(self.tpots)

    @property
    def speedups(self) -> tuple[float, ...]:
        """Of each round over plain decoding in the same round; 1 for plain decoding itself."""
        pairs = zip(self.plain, self.samples, strict=True)
        return tuple(Repeat(plain, sample).speedup or 0.0 for plain, sample in pairs)

    @property
    def speedup(self) -> float:
        return statistics.median(self.speedups)

    @property
    def beats_plain(self) -> bool:
        """In every round; of MANY, one may have been disturbed."""
        if self.candidate.plain:
            return False
        slower = sum(speedup <= 1 for speedup in self.speedups)
        return slower <= (len(self.speedups) >= MANY)

    @property
    def spread(self) -> float:
        """How much faster the fastest round was than the slowest, 0 for one round."""
        rates = self._rates
        return max(rates) / min(rates) - 1 if min(rates) > 0 else 0.0

    @property
    def _rates(self) -> list[float]:
        return [sample.tokens_per_s or 0.0 for sample in self.samples]

    def apart(self, other: Measured) -> bool:
        """Whether the slowest round of one is faster than the fastest of the other; of MANY, the
        slowest is left out."""
        mine, theirs = (
            sorted(one._rates)[len(one._rates) >= MANY :] for one in (self, other)
        )  # fmt: skip
        return min(mine) > max(theirs) or min(theirs) > max(mine)


def verdict(measured: Sequence[Measured], objective: Objective) -> Ranking[Measured]:
    """The measured ranking, of one place or several; each has its plain decoding in `measured`.

    Speculation has to beat plain decoding as `beats_plain` says to win over it; where plain
    decoding breaks the TPOT limit, it need not.
    """
    found = rank(measured, objective, Measured.apart)
    if found.winner is None:
        return found
    plain = {one.place: one for one in measured if one.candidate.plain}
    able = [
        one for one in measured
        if one.candidate.plain or one.beats_plain or not objective.allows(plain[one.place])
    ]  # fmt: skip
    winner = rank(able, objective, Measured.apart)
    return Ranking(found.ordered, winner.winner, found.nearest, winner.as_good)


def unsteady(measured: Sequence[Measured]) -> bool:
    """Whether the rounds of anybody differ by more than UNSTEADY."""
    return any(one.spread > UNSTEADY for one in measured)
