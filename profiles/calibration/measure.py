"""The grid that `magicdec calibrate` measures, and the order in which it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from magicdec.engine.config import DraftWeights
from magicdec.engine.errors import ConfigError
from magicdec.engine.session import Session
from magicdec.engine.text.documents import Document
from magicdec.kernels.linear import int8_unsupported, make_linear
from magicdec.profiles.calibration.steps import (
    STAGGER,
    SelectSample,
    StepBench,
    StepSample,
    Visit,
    document_ids,
)

READ_BYTES = 256 * 2**20
#: Read in turn, so that what is read next left every cache long ago.
LEAST_PLACES = 4
CPUS = Path("/sys/devices/system/cpu")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
GEMM = (512, 1024, 1024)  # tokens, in, out: prefill's kind of product


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def caches(cpus: Path = CPUS) -> int:
    """Bytes of all caches of the CPUs, each counted once; 0 where the system does not say."""
    found: dict[tuple[str, ...], int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index*"):
        try:
            about = [(cache / name).read_text().strip() for name in ("size", "level", "type")]
            shared = (cache / "shared_cpu_list").read_text().strip()
        except OSError:
            continue
        size, unit = about[0][:-1], about[0][-1:]
        if size.isdecimal() and unit in UNITS:
            found[*about[1:], shared] = int(size) * UNITS[unit]
    return sum(found.values())


def places(cached: int) -> int:
    """How many arrays to read in turn, so that the others are twice what the caches hold."""
    return max(LEAST_PLACES, 1 - (-2 * cached // READ_BYTES))


class Machine:
    """Reading rate (a large sum) and arithmetic rate (a float32 GEMM) of the CPU.

    A shared machine's rates drift: call `sample` in turn with the work that is measured, several
    times. The quickest sample counts: whatever else runs can only slow one down, and a floor from a
    slow one is none.
    """

    def __init__(self) -> None:
        tokens, inputs, outputs = GEMM
        self._places: Iterator[Tensor] = cycle(torch.ones(places(caches()), READ_BYTES // 4))
        self._x = torch.randn(tokens, inputs)
        self._linear = make_linear(torch.randn(outputs, inputs))
        self._reads: list[float] = []
        self._gemms: list[float] = []

    def sample(self) -> None:
        self._reads.append(seconds(next(self._places).sum))
        self._gemms.append(seconds(self._multiply))

    def forget(self) -> None:
        """Starts over, for the next thing that is measured."""
        self._reads.clear()
        self._gemms.clear()

    @property
    def read_rate(self) -> float:
        """Bytes per second."""
        return READ_BYTES / min(self._reads)

    @property
    def gemm_rate(self) -> float:
        """Floating-point operations per second."""
        tokens, inputs, outputs = GEMM
        return 2 * tokens * inputs * outputs / min(self._gemms)

    def floor(self, nbytes: int, flops: int) -> float:
        """The least seconds in which so much can be read and computed, both at once."""
        return max(nbytes / self.read_rate, flops / self.gemm_rate)

    def _multiply(self) -> Tensor:
        return self._linear(self._x)


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
