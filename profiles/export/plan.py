"""Which γ is best where: from the measured speedups, or from another engine's step times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.acceptance import AcceptanceCounts, pooled
from magicdec.profiles.export.timings import Timing
from magicdec.profiles.storage.header import Header
from magicdec.profiles.storage.schema import Cell

#: Time per token relative to plain decoding, by γ; 0 is plain decoding itself.
Times = Mapping[int, float]
Place = tuple[int, int | None]  # batch, context; None: any


@dataclass(frozen=True, slots=True)
class Range:
    """γ for batches (and contexts) from `first` to `last`, both included."""

    first: int
    last: int
    gamma: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What an export is made of. `cells` are those of the drafter it is for."""

    header: Header
    drafter: DraftSpec
    cells: tuple[Cell, ...]
    times: Mapping[Place, Times]
    target: str | None = None  # the file of step times; None: this profile's own costs
    fixed: int | None = None  # the γ to use everywhere, whatever it costs
    notes: tuple[str, ...] = field(default=())

    @property
    def acceptance(self) -> AcceptanceCounts:
        return pooled(cell.acceptance for cell in self.cells)

    @property
    def batches(self) -> list[int]:
        return sorted({batch for batch, _ in self.times})

    @property
    def contexts(self) -> list[int]:
        return sorted({context for _, context in self.times if context is not None})

    def best(self, batch: int | None = None, context: int | None = None) -> int:
        """The γ of least time per token, over every measured place that fits (geometric mean)."""
        if self.fixed is not None:
            return self.fixed
        costs = self.costs(batch, context)
        return min(costs, key=lambda gamma: (costs[gamma], gamma))

    def costs(self, batch: int | None = None, context: int | None = None) -> Times:
        """Time per token relative to plain decoding, of every γ measured at all places that fit.

        A context that was not measured at this batch stands for all of the batch's contexts.
        """
        fits = [t for (b, c), t in self.times.items() if batch in (None, b) and c == context]
        if context is None or not fits:
            fits = [t for (b, _), t in self.times.items() if batch in (None, b)]
        common = set.intersection(*(set(times) for times in fits))
        return {gamma: _geometric_mean([times[gamma] for times in fits]) for gamma in common}

    def schedule(self, context: int | None = None) -> list[Range]:
        """γ by batch, neighbours of equal γ merged. The last range ends at the largest batch."""
        merged: list[Range] = []
        for batch, (first, last) in zip(self.batches, spans(self.batches), strict=True):
            gamma = self.best(batch, context)
            if merged and merged[-1].gamma == gamma:
                first = merged.pop().first
            merged.append(Range(first, last, gamma))
        return merged

    def speculates(self) -> None:
        """Raises ConfigError where plain decoding is best everywhere: no engine needs that told."""
        if all(part.gamma == 0 for part in self.schedule()):
            raise ConfigError(
                "plain decoding is fastest at every measured batch: leave speculation off; "
                "--gamma N exports a draft length all the same"
            )


def spans(values: Sequence[int]) -> list[tuple[int, int]]:
    """Each measured value stands for those nearest to it on a log scale; the first from 1."""
    edges = [math.isqrt(low * high) for low, high in pairwise(values)]
    return list(zip([1, *(edge + 1 for edge in edges)], [*edges, values[-1]], strict=True))


def measured_times(cells: Iterable[Cell]) -> dict[Place, dict[int, float]]:
    """From the speedups of cells that were compared with plain decoding."""
    times: dict[Place, dict[int, float]] = defaultdict(lambda: {0: 1.0})
    for cell in cells:
        if cell.speedup:
            times[cell.key.batch, cell.key.context][cell.key.gamma] = 1 / cell.speedup
    return dict(times)


def target_times(
    timings: Sequence[Timing], cells: Sequence[Cell]
) -> tuple[dict[Place, dict[int, float]], tuple[str, ...]]:
    """(γ·T_D + T_V(γ)) / Ω(γ) / T_T of another engine, Ω from the acceptance measured here.

    Acceptance is that of the nearest measured context (log scale). Also returns what was left
    out: γ beyond the measured positions.
    """
    by_context: dict[int, list[AcceptanceCounts]] = defaultdict(list)
    for cell in cells:
        if cell.drafted:
            by_context[cell.key.context].append(cell.acceptance)
    if not by_context:
        raise ConfigError("no cell of the profile has acceptance; record it with gamma above 0")
    times: dict[Place, dict[int, float]] = defaultdict(lambda: {0: 1.0})
    left_out = set()
    for timing in timings:
        acceptance = _nearest(by_context, timing.context)
        place = times[timing.batch, timing.context]
        if timing.gamma > len(acceptance.drafted):
            left_out.add(timing.gamma)
            continue
        step = timing.times.step(timing.gamma)
        place[timing.gamma] = step / acceptance.length(timing.gamma) / timing.times.plain
    beyond = ", ".join(map(str, sorted(left_out)))
    notes = (f"left out γ {beyond}: no acceptance was measured so far",) if left_out else ()
    return dict(times), notes


def _nearest(
    by_context: Mapping[int, Sequence[AcceptanceCounts]], context: int | None
) -> AcceptanceCounts:
    """At the nearest context; of all where that does not matter."""
    near: Iterable[int] = by_context
    if context is not None:
        near = [min(by_context, key=lambda known: abs(math.log(known / context)))]
    return pooled(counts for known in near for counts in by_context[known])


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
