"""The steps of one pass as samples: their time per token, and how sure a speedup is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from magicdec.engine.events import StepFinished

FEWEST = 8  # steps on either side before a spread means anything
NORMAL_95 = 1.96


@dataclass(slots=True)
class Pace:
    """Fed with the steps of one pass."""

    _steps: int = 0
    _seconds: float = 0.0  # in steps
    _waited: float = 0.0  # between them
    _tokens: int = 0
    _squares: tuple[float, float, float] = (0.0, 0.0, 0.0)  # sums of t², t·n and n²

    def add(self, event: StepFinished) -> None:
        seconds, tokens = event.phases.decode, sum(len(share.tokens) for share in event.rows)
        self._steps += 1
        self._waited += event.waited.decode
        self._seconds += seconds
        self._tokens += tokens
        tt, tn, nn = self._squares
        self._squares = (tt + seconds**2, tn + seconds * tokens, nn + tokens**2)

    @property
    def seconds_per_token(self) -> float | None:
        """Of all rows together, selection included."""
        return (self._seconds + self._waited) / self._tokens if self._tokens else None

    @property
    def relative_variance(self) -> float | None:
        """Of the steps' seconds per token, as a ratio of two sums over steps (delta method).

        Steps are taken as independent, which a machine that slows down half-way is not.
        """
        if self._steps < FEWEST or not self._tokens or not self._seconds:
            return None
        ratio = self._seconds / self._tokens
        tt, tn, nn = self._squares
        residuals = max(tt - 2 * ratio * tn + ratio**2 * nn, 0.0)
        steps = self._steps
        return residuals / (steps - 1) * steps / self._seconds**2


@dataclass(frozen=True, slots=True)
class Measured:
    """A speedup and its 95% half-width from the variation of steps; None: too few steps."""

    speedup: float
    spread: float | None
    final: bool  # False: the run goes on


def live_speedup(plain: Pace, speculative: Pace) -> Measured | None:
    before, after = plain.seconds_per_token, speculative.seconds_per_token
    if before is None or not after:
        return None
    return Measured(before / after, spread_of(before / after, plain, speculative), False)


def spread_of(speedup: float, plain: Pace, speculative: Pace) -> float | None:
    """95% half-width of plain / speculative seconds per token: relative variances add."""
    variances = (plain.relative_variance, speculative.relative_variance)
    if variances[0] is None or variances[1] is None:
        return None
    return NORMAL_95 * speedup * math.sqrt(variances[0] + variances[1])


def bucketed(rates: Iterable[tuple[int, int]], width: int) -> list[float]:
    """(accepted, drafted) by step, as at most `width` rates; each pools as many steps."""
    steps = list(rates)
    size = max(-(-len(steps) // max(width, 1)), 1)
    pooled = []
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        drafted = sum(d for _, d in part)
        pooled.append(sum(a for a, _ in part) / drafted if drafted else 0.0)
    return pooled
