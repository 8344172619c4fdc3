"""γ by the cost model: T(γ) / Ω(γ) is to be least (MagicDec, arXiv 2408.11049, section 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from magicdec.engine.gamma.history import History
from magicdec.engine.gamma.lengths import lengths
from magicdec.engine.gamma.policy import Situation

#: Draft lengths that are timed where nobody knows what a step takes; the others lie on a line.
PROBES = (3, 1, 0)
TRIES = 2  # the first step of a kind is often a slow one
ASSUMED = 0.8  # acceptance before anything is known


class Prices(Protocol):
    """What a calibration knows. Seconds."""

    def step(self, rows: int, context: float, gamma: int) -> float:
        """Of one step, the draft included; γ = 0: of plain decoding."""

    def prepare(self, context: float) -> float:
        """Of selecting one row's draft KV, once."""


@dataclass(frozen=True, slots=True)
class Auto:
    """The γ that decodes what is left of the rows soonest.

    Acceptance is the run's own as it goes on, mixed with `acceptance`, the guess before it. Times
    are those of `prices`, or without any the run's own: the first steps then try some draft
    lengths, and now and then a step tries them again. Which γ comes out depends on the batch, and
    without prices on the clock: with sampling, a seed then no longer fixes the text of a row, while
    its distribution stays exact.
    """

    prices: Prices | None = None
    acceptance: float = ASSUMED
    source: str = "the run's own step times"
    name: str = field(default="auto", init=False)
    stop: float | None = field(default=None, init=False)

    def gamma(self, now: Situation) -> int:
        if self.prices is None and (untried := _untried(now)) is not None:
            return untried
        rates = now.history.rates(self.acceptance, now.most)
        best, least = 0, now.left * self._step(now, 0)
        for gamma, omega in enumerate(lengths(rates)[1:], start=1):
            seconds = now.left / omega * self._step(now, gamma) + self._prepare(now)
            if seconds < least:
                best, least = gamma, seconds
        return best

    def _step(self, now: Situation, gamma: int) -> float:
        if self.prices is not None:
            return self.prices.step(now.rows, now.context, gamma)
        return measured_step(now.history, now.rows, gamma, now.most)

    def _prepare(self, now: Situation) -> float:
        """Selecting the KV of the rows that still need it."""
        return now.unprepared * self.prices.prepare(now.context) if self.prices is not None else 0.0


def _untried(now: Situation) -> int | None:
    """A draft length that has to be timed (again) first; None when all are."""
    for gamma in _probes(now.most):
        if now.history.tries(now.rows, gamma) < TRIES:
            return gamma
    return None


def _probes(most: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(gamma, most) for gamma in PROBES))


def measured_step(history: History, rows: int, gamma: int, most: int) -> float:
    """Seconds of a step: as timed, or on the line through the draft lengths that were."""
    timed = history.seconds(rows, gamma)
    if timed is not None:
        return timed
    longest, shortest = _probes(most)[0], _probes(most)[-2]
    high, low = history.seconds(rows, longest), history.seconds(rows, shortest)
    assert high is not None and low is not None, "every probe was timed"
    slope = (high - low) / (longest - shortest) if longest > shortest else high
    return low + max(0.0, slope) * (gamma - shortest)
