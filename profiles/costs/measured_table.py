"""Predictions beside measured experiments, their errors, and constants fitted to them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np

from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.catalog import find_device
from magicdec.profiles.costs.fitting import Fit, PassSample, Prior, fit_constants
from magicdec.profiles.costs.hardware import Entry
from magicdec.profiles.costs.speculation import step_costs
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.costs.table_file import Measured

NEITHER = (0.95, 1.05)  # measured speedups that count neither as a gain nor as a loss
FREE = ("layer_s", "compact_s", "bandwidth_efficiency", "gemm_efficiency", "link_efficiency")
# Shared between devices: what GPUs are known to reach. Decides only where rows are few.
PRIORS = {
    "compact_s": Prior(5e-8, 1.0),
    "bandwidth_efficiency": Prior(0.88, 0.05),
    "gemm_efficiency": Prior(0.6, 0.2),
    "link_efficiency": Prior(0.3, 0.7),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One experiment and what the model says of it."""

    measured: Measured
    times: StepTimes[float]

    @property
    def speedup(self) -> float:
        return self.times.speedup(self.measured.gamma, self.measured.omega)

    @property
    def error(self) -> float:
        """Predicted ÷ measured speedup − 1."""
        return self.speedup / self.measured.speedup - 1

    @property
    def same_side(self) -> bool | None:
        return _same_side(self.speedup, self.measured.speedup)


@dataclass(frozen=True, slots=True)
class Summary:
    """Errors of predicted speedups, as fractions, over the rows of `name`."""

    name: str
    rows: int
    mean: float
    median: float
    p90: float
    bias: float
    same_side: int
    judged: int  # rows whose measured speedup is a gain or a loss


def compare(rows: Iterable[Measured]) -> list[Compared]:
    """Prices every row with the constants of its hardware and the row's own γ and Ω."""
    return [_compared(row) for row in rows]


def summaries(compared: Sequence[Compared]) -> list[Summary]:
    """Over all rows, then by table, by hardware and by target."""
    found = [_summary("all", compared)]
    keys: list[tuple[str, Callable[[Measured], str]]] = [
        ("table", lambda row: row.table),
        ("hardware", lambda row: row.hardware.label),
        ("target", lambda row: row.target.name),
    ]
    for kind, key in keys:
        for name in dict.fromkeys(key(c.measured) for c in compared):
            if name:
                part = [c for c in compared if key(c.measured) == name]
                found.append(_summary(f"{kind} {name}", part))
    return found


def refit(rows: Sequence[Measured], source: str) -> list[Entry]:
    """Hardware with constants fitted to `rows`, which came from `source`. Raises ConfigError.

    The three passes of every row are fitted together, for each kind of device alone. What a
    speculative step takes besides its passes is the median of what it measurably took.
    """
    names = dict.fromkeys(row.hardware.device.name for row in rows)
    return [
        _refit(name, [r for r in rows if r.hardware.device.name == name], source) for name in names
    ]


def with_hardware(rows: Iterable[Measured], entries: Iterable[Entry]) -> list[Measured]:
    """The rows on the hardware of `entries`, where they have it."""
    by_name = {entry.hardware.device.name: entry.hardware for entry in entries}
    found = []
    for row in rows:
        other = by_name.get(row.hardware.device.name, row.hardware)
        found.append(replace(row, hardware=replace(other, count=row.hardware.count)))
    return found


def _compared(row: Measured) -> Compared:
    [times] = step_costs(
        row.target, row.hardware, row.drafting, rows=row.batch, context=row.context, gamma=row.gamma
    ).cells()
    return Compared(row, times)


def _same_side(predicted: float, measured: float) -> bool | None:
    """Whether both call it a gain, or a loss; None where the measurement calls it neither."""
    if NEITHER[0] <= measured <= NEITHER[1]:
        return None
    return (predicted > 1) == (measured > 1)


def summary(name: str, pairs: Sequence[tuple[float, float]]) -> Summary:
    """Of predicted and measured speedups."""
    errors = np.array([predicted / measured - 1 for predicted, measured in pairs])
    sides = [side for pair in pairs if (side := _same_side(*pair)) is not None]
    sizes = np.abs(errors)
    return Summary(
        name, len(pairs), float(sizes.mean()), float(np.median(sizes)),
        float(np.quantile(sizes, 0.9)), float(errors.mean()), sum(sides), len(sides),
    )  # fmt: skip


def _summary(name: str, compared: Sequence[Compared]) -> Summary:
    return summary(name, [(c.speedup, c.measured.speedup) for c in compared])


def _refit(name: str, rows: Sequence[Measured], source: str) -> Entry:
    entry = find_device(rows[0].gpu)
    rests = [
        row.step_ms - row.gamma * row.draft_ms - row.verify_ms
        for row in rows
        if row.step_ms is not None and row.draft_ms is not None and row.verify_ms is not None
    ]
    if not rests:
        raise ConfigError(
            f"{source}: no row on {name} has draft_ms_total, verify_ms and sd_ms; "
            "constants cannot be fitted without them"
        )
    samples = [sample for row in rows for sample in _samples(row)]
    fit = fit_constants(samples, entry.hardware.device, free=FREE, priors=PRIORS)
    constants = replace(fit.constants, step_s=max(0.0, float(np.median(rests)) / 1e3))
    hardware = replace(entry.hardware, constants=constants)
    fitted = replace(entry, hardware=hardware, constants_of=None)
    summary = _summary(name, compare(with_hardware(rows, [fitted])))
    told = replace(hardware, provenance=_provenance(rows, source, fit, summary))
    return replace(fitted, hardware=told)


def _samples(row: Measured) -> list[PassSample]:
    budget = row.drafting.budget
    read: float = row.context if budget is None else min(budget, row.context)
    read += row.context * row.drafting.select_per_token
    passes = [
        (row.drafting.model or row.target, read, 1, row.draft_ms, budget is not None),
        (row.target, row.context, row.gamma + 1, row.verify_ms, False),
        (row.target, row.context, 1, row.plain_ms, False),
    ]
    return [
        PassSample(model, row.batch, entries, new, ms / 1e3, row.hardware.count, compact=compact)
        for model, entries, new, ms, compact in passes
        if ms is not None
    ]


def _provenance(rows: Sequence[Measured], source: str, fit: Fit, summary: Summary) -> str:
    tables = [table for table in dict.fromkeys(row.table for row in rows) if table]
    of_tables = f", tables {', '.join(tables)}" if tables else ""
    counts = ", ".join(f"{n}" for n in sorted({row.hardware.count for row in rows}))
    expected = ", ".join(f"{name} {prior.centre:g}" for name, prior in PRIORS.items())
    return (
        f"fitted by magicdec {version('magicdec')} on {datetime.date.today()} to {source}"
        f"{of_tables}: {len(rows)} rows on {counts} devices; error of the times "
        f"mean {fit.mean_error:.1%}, p90 {fit.p90_error:.1%}, of the speedups "
        f"mean {summary.mean:.1%}, p90 {summary.p90:.1%}, bias {summary.bias:+.1%}; "
        f"drawn towards {expected}; step_s is a median"
    )
