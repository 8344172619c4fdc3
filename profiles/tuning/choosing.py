"""The ranking, and who wins it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from magicdec.profiles.tuning.objective import Objective, Rated
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
