"""From timed steps to a calibration: bounded least squares on each kind of pass."""

from __future__ import annotations

import datetime
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from magicdec.engine.model.spec import ModelSpec
from magicdec.profiles.bench.steps import SelectSample, StepSample
from magicdec.profiles.calibrated import (
    BYTES,
    Accepted,
    Calibration,
    Fingerprint,
    Residuals,
    Selection,
)
from magicdec.profiles.costs.fitting import Fit, PassSample, fit_constants
from magicdec.profiles.costs.hardware import Device, Hardware
from magicdec.profiles.costs.shapes import ModelShape

#: Target passes; same-weight drafts are among them, and alone tell what a compact cache costs.
TARGET = (
    "layer_s", "compact_s", "bandwidth_efficiency", "gemm_efficiency", "attention_efficiency",
    "overlap",
)  # fmt: skip
#: Draft steps have one token per row: what the target's passes say of attention and overlap stays.
TWIN = ("layer_s", "compact_s", "bandwidth_efficiency", "gemm_efficiency")
LEAST = 8  # row-steps that must have reached a draft position for its rate to be kept
WEIGHT_BYTES = {"int8": 1.0}


def fit_calibration(
    samples: Iterable[StepSample | SelectSample],
    *,
    model: ModelShape,
    device: Device,
    fingerprint: Fingerprint,
) -> Calibration:
    """Fits everything that was measured. Raises ConfigError when that is too little."""
    found = list(samples)
    steps = [s for s in found if isinstance(s, StepSample)]
    passes = _Cells(model, fingerprint)
    target = passes.verify(steps) + passes.draft(steps, "same")
    fit = fit_constants(target, device, free=TARGET)
    errors = list(zip(target, fit.errors, strict=True))
    residuals = [
        _residuals("plain", [e for s, e in errors if s.new == 1 and not s.compact]),
        _residuals("verify", [e for s, e in errors if s.new > 1]),
        _residuals("draft, same weights", [e for s, e in errors if s.compact]),
    ]
    twins: dict[str, Fit] = {}
    for kind in sorted({s.weights for s in steps if s.gamma} - {"same"}):
        drafts = passes.draft(steps, kind)
        twins[kind] = fit_constants(drafts, device, free=TWIN, start=fit.constants)
        residuals.append(_residuals(f"draft, {kind} weights", list(twins[kind].errors)))
    rest = statistics.median(s.rest_s for s in steps if s.gamma)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    hardware = Hardware(
        device,
        constants=replace(fit.constants, step_s=rest),
        by_weights={kind: twin.constants for kind, twin in twins.items()},
        provenance=f"calibrated {now} with {model.name}: {len(steps)} steps",
    )
    selects = [s for s in found if isinstance(s, SelectSample)]
    return Calibration(
        now, fingerprint, model, hardware, _selections(selects), _acceptances(steps),
        tuple(r for r in residuals if r.passes),
    )  # fmt: skip


def shape_of(spec: ModelSpec, name: str) -> ModelShape:
    return ModelShape(
        name=name, layers=spec.layers, hidden=spec.hidden_size,
        intermediate=spec.intermediate_size, heads=spec.heads, kv_heads=spec.kv_heads,
        head_dim=spec.head_dim, vocab=spec.vocab_size, max_position=spec.max_position,
        tied=spec.tied,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cells:
    """Passes of one kind and size as one sample each: the median, which odd timings do not move."""

    model: ModelShape
    fingerprint: Fingerprint

    def verify(self, steps: Sequence[StepSample]) -> list[PassSample]:
        cells: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for s in steps:
            key = (s.visit.context, s.rows, s.gamma + 1)
            cells[key].append((s.context, s.verify_s))
        return [self._sample(rows, new, times) for (_, rows, new), times in cells.items()]

    def draft(self, steps: Sequence[StepSample], weights: str) -> list[PassSample]:
        cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for s in steps:
            if s.gamma and s.weights == weights:
                held = min(s.visit.budget, s.visit.context)
                entries = s.entries + (s.gamma - 1) / 2  # each token of the draft adds one
                cells[held, s.rows].append((entries, s.draft_s))
        return [
            replace(self._sample(rows, 1, times, weights), compact=True)
            for (_, rows), times in cells.items()
        ]

    def _sample(
        self, rows: int, new: int, times: list[tuple[float, float]], weights: str = "same"
    ) -> PassSample:
        element = BYTES[str(self.fingerprint["dtype"])]
        return PassSample(
            self.model, rows, statistics.mean(entries for entries, _ in times), new,
            statistics.median(seconds for _, seconds in times),
            weight_bytes=WEIGHT_BYTES.get(weights, element),
            kv_bytes=BYTES[str(self.fingerprint["kv_dtype"])], weights=weights,
        )  # fmt: skip


def _residuals(kind: str, errors: Sequence[float]) -> Residuals:
    if not errors:
        return Residuals(kind, 0, 0.0, 0.0, 0.0)
    sizes = np.abs(errors)
    return Residuals(
        kind, len(errors), float(np.median(sizes)), float(np.quantile(sizes, 0.9)),
        float(np.mean(errors)),
    )  # fmt: skip


def _selections(samples: Sequence[SelectSample]) -> tuple[Selection, ...]:
    """fixed_s and token_s by non-negative least squares on relative errors."""
    from scipy.optimize import nnls

    found = []
    for selector in dict.fromkeys(s.selector for s in samples):
        own = [s for s in samples if s.selector == selector]
        times = np.array([s.seconds for s in own])
        design = np.array([[1.0, s.context] for s in own]) / times[:, None]
        (fixed, token), _ = nnls(design, np.ones(len(own)))
        found.append(Selection(selector, float(fixed), float(token)))
    return tuple(found)


def _acceptances(steps: Sequence[StepSample]) -> tuple[Accepted, ...]:
    kinds: dict[tuple[str, int, str], list[StepSample]] = defaultdict(list)
    for s in steps:
        if s.gamma:
            kinds[s.visit.selector, s.visit.budget, s.weights].append(s)
    found = []
    for (selector, budget, weights), own in kinds.items():
        rates, drafted = [], 0
        for position in range(1, max(s.gamma for s in own) + 1):
            reached = [
                accepted >= position
                for s in own if s.gamma >= position
                for accepted in s.accepted if accepted >= position - 1
            ]  # fmt: skip
            if len(reached) < LEAST:
                break
            rates.append(sum(reached) / len(reached))
            drafted += len(reached)
        if rates:
            found.append(Accepted(selector, budget, weights, drafted, tuple(rates)))
    return tuple(found)
