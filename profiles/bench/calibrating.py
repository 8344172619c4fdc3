"""The grid that `magicdec calibrate` measures, and the order in which it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from magicdec.engine.config import DraftWeights
from magicdec.engine.errors import ConfigError
from magicdec.engine.session import Session
from magicdec.engine.text.documents import Document
from magicdec.kernels.linear import int8_unsupported
from magicdec.profiles.bench.machine import Machine
from magicdec.profiles.bench.rows import STAGGER, document_ids
from magicdec.profiles.bench.steps import SelectSample, StepBench, StepSample, Visit

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Grid:
    """What is measured. Contexts beyond the model's window are taken relative to it."""

    batches: tuple[int, ...] = (1, 2, 6)
    contexts: tuple[int, ...] = (6000, 2500, 500)  # the longest first: it is a prefix's donor
    gammas: tuple[int, ...] = (1, 3, 5)
    # One round: (selector, budget). Selecting by score is slow, so that most views are streaming's.
    rounds: tuple[tuple[tuple[str, int], ...], ...] = (
        (("snapkv", 256), ("streaming", 64), ("streaming", 1024)),
        (("streaming", 256), ("streaming", 1024), ("snapkv", 64)),
    )
    least_rounds: int = 2
    most_rounds: int = 4
    seconds: float = 95.0  # no round is begun that would end after so long

    def within(self, window: int) -> Grid:
        """The same shape inside a model's trained window."""
        longest = window - STAGGER * (max(self.batches) - 1) - 200  # what a visit may add
        if self.contexts[0] <= longest:
            return self
        if longest < 64:
            raise ConfigError(
                f"a window of {window:,} tokens is too short to calibrate; choose another model"
            )
        share = longest / self.contexts[0]
        return Grid(
            self.batches, tuple(int(c * share) for c in self.contexts), self.gammas, self.rounds,
            self.least_rounds, self.most_rounds, self.seconds,
        )  # fmt: skip


@dataclass(slots=True)
class Measured:
    """Grows while it is measured."""

    samples: list[StepSample | SelectSample] = field(default_factory=list)
    rounds: int = 0
    seconds: float = 0.0  # without the prefill
    prefill_s: float = 0.0
    machine: Machine = field(default_factory=Machine)


def measure(session: Session, document: Document, grid: Grid, progress: Progress) -> Measured:
    """Prefills one row, then visits every cell in turn, in rounds, because the machine drifts.

    Raises ConfigError, OutOfMemoryError, ModelError.
    """
    batch, context = max(grid.batches), grid.contexts[0]
    began = time.perf_counter()
    ids = document_ids(session, document, context + STAGGER * (batch - 1))
    weights = _weights(session)
    growth = max(visit.growth for visit in _visits(grid, 0, weights))
    bench = StepBench(session, ids, batch=batch, context=context, growth=growth)
    for share in bench.prefill():
        progress("prefill", share)
    found = Measured(prefill_s=time.perf_counter() - began)
    began = time.perf_counter()
    last = 0.0
    while found.rounds < grid.most_rounds:
        spent = time.perf_counter() - began
        if found.rounds >= grid.least_rounds and spent + last > grid.seconds:
            break
        visits = list(_visits(grid, found.rounds, weights))
        for number, visit in enumerate(visits):
            progress(_title(found.rounds, visit), number / len(visits))
            found.machine.sample()
            found.samples += bench.visit(visit)
        found.rounds += 1
        last = time.perf_counter() - began - spent
    found.seconds = time.perf_counter() - began
    return found


def _weights(session: Session) -> Sequence[DraftWeights]:
    """Kinds of weights that can draft here, the usual one first."""
    return ("same",) if int8_unsupported(session.device, session.dtype) else ("int8", "same")


def _visits(grid: Grid, number: int, weights: Sequence[DraftWeights]) -> Iterator[Visit]:
    usual, *others = weights
    steps: list[tuple[int, DraftWeights]] = [(gamma, usual) for gamma in grid.gammas]
    steps += [(1, other) for other in others]
    for context in grid.contexts:
        for selector, budget in grid.rounds[number % len(grid.rounds)]:
            yield Visit(context, selector, budget, grid.batches, tuple(steps))


def _title(number: int, visit: Visit) -> str:
    return f"round {number + 1}: {visit.context:,} tokens, {visit.selector} {visit.budget:,}"
