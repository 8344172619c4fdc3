"""Which γ is best where: from the measured speedups, or from another engine's step times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import clean, last_part
from magicdec.profiles.acceptance.rates import AcceptanceCounts, pooled
from magicdec.profiles.export.timings import Timing, read_timings
from magicdec.profiles.recorded.header import Header
from magicdec.profiles.recorded.schema import Cell, Profile

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


CHOICES = ("draft", "tree", "selector", "budget", "temperature", "batch", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which cells to export, and how. None: all, or the best."""

    draft: str | None = None
    tree: str | None = None
    selector: str | None = None
    budget: int | None = None
    temperature: float | None = None
    batch: int | None = None
    context: int | None = None
    gamma: int | None = None  # fixes γ instead of choosing it
    target_timings: str | None = None


def make_plan(profile: Profile, wanted: Wanted) -> Plan:
    """Raises ConfigError when nothing fits, or what fits was not compared with plain decoding."""
    fitting = [cell for cell in profile.finished if _fits(cell, wanted)]
    sound = [cell for cell in fitting if cell.lossless.ok is not False]
    if fitting and not sound:
        raise ConfigError("every cell that fits failed the check for losslessness")
    cells = [cell for cell in sound if cell.key.fixed]
    if sound and not cells:
        raise ConfigError(
            "every cell that fits has a gamma that changes, which no engine can be told; measure "
            "--gamma with numbers, too"
        )
    if not cells:
        raise ConfigError(f"no finished cell fits; the profile has {_choices(profile)}")
    drafters: dict[DraftSpec, list[Cell]] = defaultdict(list)
    for cell in cells:
        drafters[cell.key.drafter].append(cell)
    scores = {drafter: _score(found, wanted.gamma) for drafter, found in drafters.items()}
    drafter = max(sorted(drafters, key=lambda d: d.label), key=lambda d: scores[d])
    chosen = drafters[drafter]
    notes: tuple[str, ...] = ()
    if len(sound) < len(fitting):
        notes = (f"left out for not being lossless: {len(fitting) - len(sound)} of the cells",)
    if len(cells) < len(sound):
        notes += (f"left out for a gamma that changes: {len(sound) - len(cells)} of the cells",)
    if len(drafters) > 1:
        notes += (
            f"one of {len(drafters)} drafters: that with most cells, then the fastest; --draft, "
            "--selector, --budget and --temperature choose",
        )
    times: dict[Place, dict[int, float]]
    if wanted.target_timings is not None:
        timings = read_timings(wanted.target_timings)
        times, left_out = target_times(timings, chosen)
        notes += left_out
    else:
        times = measured_times(chosen)
    times = _with_fixed(times, chosen, wanted)
    return Plan(
        profile.header,
        drafter,
        tuple(chosen),
        times,
        _file(wanted.target_timings),
        wanted.gamma,
        notes,
    )


def _with_fixed(
    times: dict[Place, dict[int, float]], cells: Sequence[Cell], wanted: Wanted
) -> dict[Place, dict[int, float]]:
    """A fixed γ needs acceptance so far, but no costs."""
    if wanted.gamma is None:
        if not any(len(found) > 1 for found in times.values()):
            raise ConfigError(
                "no cell was compared with plain decoding, so no gamma can be chosen; "
                "give --gamma N, or --target-timings FILE"
            )
        return times
    known = max(len(cell.drafted_per_position) for cell in cells)
    if wanted.gamma > known:
        raise ConfigError(f"gamma {wanted.gamma} is beyond the {known} positions that were drafted")
    return times or {(cell.key.batch, cell.key.context): {0: 1.0} for cell in cells}


def _fits(cell: Cell, wanted: Wanted) -> bool:
    return all(getattr(wanted, n) in (None, getattr(cell.key, n)) for n in CHOICES)


def _score(cells: Sequence[Cell], gamma: int | None) -> tuple[int, float, float]:
    """Measured places, then the mean log speedup of the best γ there, or of that one: only then
    comparable. Plain decoding counts as well, and where it wins everywhere the draft loses least.
    """
    found: list[Times] = list(measured_times(cells).values())
    if gamma is not None:
        found = [{0: 1.0, gamma: times[gamma]} for times in found if gamma in times]
    if not found:
        return 0, -math.inf, -math.inf
    drafting = [min(t for g, t in times.items() if g) for times in found]
    best = [min(1.0, time) for time in drafting]
    return len(found), _mean_log_speedup(best), _mean_log_speedup(drafting)


def _mean_log_speedup(times: Sequence[float]) -> float:
    return -sum(map(math.log, times)) / len(times)


def _choices(profile: Profile) -> str:
    if not profile.finished:
        return "none"
    keys = [cell.key for cell in profile.finished]
    parts = []
    for name in CHOICES:
        found = {getattr(key, name) for key in keys} - {None}
        shown = [value if isinstance(value, str) else f"{value:g}" for value in sorted(found)]
        parts += [f"{name} {', '.join(shown)}"] if shown else []
    return "; ".join(parts)


def _file(path: str | None) -> str | None:
    return None if path is None else clean(last_part(str(Path(path))))
