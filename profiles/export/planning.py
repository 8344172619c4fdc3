"""From a profile and what was asked for to the plan that every format renders."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import clean, last_part
from magicdec.profiles.export.plan import Place, Plan, Times, measured_times, target_times
from magicdec.profiles.export.timings import read_timings
from magicdec.profiles.storage.schema import Cell, Profile

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
