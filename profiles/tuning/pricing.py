"""What a candidate would take at a place, from acceptance and step times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Place
from magicdec.profiles.tuning.evidence import Evidence
from magicdec.profiles.tuning.schedule import Run, schedule, stretched


class Prices(Protocol):
    """What a machine's steps take."""

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepTimes[float]]:
        """For 1, 2, ... `place.batch` rows at that context."""

    def once(self, candidate: Candidate, place: Place) -> float:
        """Before a row's first step: its selection."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a candidate needs at a place, and what may be used."""

    needed: int
    usable: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate at a place, priced. Seconds are those of decoding all rows, selection included.

    `range`: the speedup at both ends of the acceptance's interval; None where that is not known.
    """

    place: Place
    candidate: Candidate
    memory: Memory
    price: StepTimes[float]  # with a full batch
    tokens: int
    seconds: float
    plain_seconds: float
    once: float = 0.0  # selection of a row, before its first step
    selection_s: float = 0.0  # of all rows, part of `seconds`
    tpot: float  # seconds, mean over rows
    row_seconds: tuple[float, ...]  # of the surveyed rows, each by itself in a full batch
    length: float = 1.0
    interval: tuple[float, float] | None = None
    range: tuple[float, float] | None = None
    per_position: tuple[float, ...] = ()

    @property
    def speedup(self) -> float:
        """Over plain decoding of the same rows in the same batch."""
        return self.plain_seconds / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


def price(
    candidate: Candidate, place: Place, evidence: Evidence, prices: Prices, memory: Memory
) -> Option:
    """`evidence` is that of the candidate's drafter and γ; for plain decoding any of the text's.

    With fewer surveyed rows than slots the batch is filled with rows like them; more wait.
    """
    steps = _mixed(prices(candidate, place), evidence.drafting)
    tokens = _rows(evidence.tokens, place.batch)
    before = schedule(tokens, [at.plain for at in steps], place.batch)
    option = Option(
        place=place, candidate=candidate, memory=memory, price=steps[-1],
        tokens=round(sum(tokens)), seconds=before.seconds, plain_seconds=before.seconds,
        tpot=_tpot(before, tokens, 0.0),
        row_seconds=tuple(count * steps[-1].plain for count in evidence.tokens),
    )  # fmt: skip
    if candidate.plain:
        return option
    step_s = [at.step(candidate.gamma) for at in steps]

    def run(needed: Sequence[float]) -> Run:
        return schedule(_rows(needed, place.batch), step_s, place.batch)

    after, select = run(evidence.steps), prices.once(candidate, place)
    selection = len(tokens) * select
    wait = min(place.batch, len(tokens)) * select
    ends = None
    if evidence.interval is not None:
        low, high = (
            before.seconds / (run(evidence.scaled(length)).seconds + selection)
            for length in evidence.interval
        )
        ends = (low, high)
    return replace(
        option, seconds=after.seconds + selection, once=select, selection_s=selection,
        tpot=_tpot(after, tokens, wait),
        row_seconds=tuple(count * step_s[-1] + select for count in evidence.steps),
        length=evidence.length, interval=evidence.interval, range=ends,
        per_position=evidence.per_position,
    )  # fmt: skip


def _mixed(steps: Sequence[StepTimes[float]], drafting: float) -> list[StepTimes[float]]:
    """A step in which no row drafts verifies nothing: it is one of plain decoding."""
    if drafting == 1:
        return list(steps)
    found = []
    for rows, at in enumerate(steps, start=1):
        none = (1 - drafting) ** rows
        found.append(replace(at, verify=none * at.plain + (1 - none) * at.verify))
    return found


def plain_option(place: Place, evidence: Evidence, prices: Prices, memory: Memory) -> Option:
    """Plain decoding of the same rows."""
    return price(PLAIN, place, evidence, prices, memory)


def _rows(values: Sequence[float], slots: int) -> list[float]:
    if len(values) >= slots:
        return [float(value) for value in values]
    return [float(value) for value in stretched(values, slots)]


def _tpot(run: Run, tokens: Sequence[float], wait: float) -> float:
    """Mean over rows of the time after the first token by tokens after it."""
    each = [
        (seconds + wait) / count
        for seconds, count in zip(run.rows, tokens, strict=True)
        if count
    ]  # fmt: skip
    return sum(each) / len(each) if each else 0.0
