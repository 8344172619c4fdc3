"""From timed steps to a calibration: bounded least squares on each kind of pass."""

from __future__ import annotations

import datetime
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from magicdec.engine.model.spec import ModelSpec
from magicdec.profiles.calibration.calibration import (
    BYTES,
    Accepted,
    Calibration,
    Fingerprint,
    Residuals,
    Selection,
)
from magicdec.profiles.calibration.steps import SelectSample, StepSample
from magicdec.profiles.costs.fitting import Fit, PassSample, fit_constants
from magicdec.profiles.costs.hardware import Device, Hardware
from magicdec.profiles.costs.model import ModelShape

#: Plain and verify passes.
TARGET = (
    "layer_s", "bandwidth_efficiency", "gemm_efficiency", "attention_efficiency", "overlap",
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
    passes = _Cells(model, fingerprint, steps)
    target = passes.verify()
    fit = fit_constants(target, device, free=TARGET)
    errors = list(zip(target, fit.errors, strict=True))
    residuals = [
        _residuals("plain", [e for s, e in errors if s.new == 1]),
        _residuals("verify", [e for s, e in errors if s.new > 1]),
    ]
    twins: dict[str, Fit] = {}
    for kind in sorted({s.weights for s in steps if s.gamma}):
        drafts = passes.draft(kind)
        free = TWIN if kind != "same" else ("compact_s",)
        twins[kind] = fit_constants(drafts, device, free=free, start=fit.constants)
        residuals.append(_residuals(f"draft, {kind} weights", list(twins[kind].errors)))
    rest = statistics.median(s.times.rest for s in steps if s.gamma)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    hardware = Hardware(
        device,
        constants=replace(fit.constants, step_s=rest, compact_s=twins["same"].constants.compact_s),
        by_weights={kind: twin.constants for kind, twin in twins.items() if kind != "same"},
        provenance=f"calibrated {now} with {model.name}: {len(steps)} steps",
    )
    selects = [s for s in found if isinstance(s, SelectSample)]
    return Calibration(
        now, fingerprint, model, hardware, _selections(selects), _acceptances(steps),
        tuple(residuals),
    )  # fmt: skip


def shape_of(spec: ModelSpec, name: str) -> ModelShape:
    return ModelShape(
        name=name, layers=spec.layers, hidden=spec.hidden_size,
        intermediate=spec.intermediate_size, heads=spec.heads, kv_heads=spec.kv_heads,
        head_dim=spec.head_dim, vocab=spec.vocab_size, max_position=spec.trained_window,
        tied=spec.tied,
    )  # fmt: skip


class _Cells:
    """Passes of one kind and size as one sample each.

    A speculative step counts relative to the plain steps around it, which saw the same machine:
    its times are the median of these ratios, times the median of all plain steps of that size.
    """

    def __init__(
        self, model: ModelShape, fingerprint: Fingerprint, steps: Sequence[StepSample]
    ) -> None:
        self._model, self._steps = model, steps
        self._element = BYTES[str(fingerprint["dtype"])]
        self._kv_bytes = BYTES[str(fingerprint["kv_dtype"])]
        plain: dict[tuple[int, int], list[float]] = defaultdict(list)
        for s in steps:
            if not s.gamma:
                plain[s.visit.context, s.rows].append(s.step_s)
        self._plain = {key: statistics.median(times) for key, times in plain.items()}

    def verify(self) -> list[PassSample]:
        """Plain passes, too."""
        cells: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for s in self._steps:
            seconds = self._steadied(s, s.times.verify)
            cells[s.visit.context, s.rows, s.gamma + 1].append((s.context, seconds))
        return [self._sample(rows, new, times) for (_, rows, new), times in cells.items()]

    def draft(self, weights: str) -> list[PassSample]:
        cells: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for s in self._steps:
            if s.gamma and s.weights == weights:
                held = min(s.visit.budget, s.visit.context)
                entries = s.entries + (s.gamma - 1) / 2  # each token of the draft adds one
                cells[held, s.rows].append((entries, self._steadied(s, s.times.draft)))
        return [
            replace(self._sample(rows, 1, times, weights), compact=True)
            for (_, rows), times in cells.items()
        ]

    def _steadied(self, step: StepSample, seconds: float) -> float:
        if not step.gamma:
            return seconds
        return seconds / step.times.plain * self._plain[step.visit.context, step.rows]

    def _sample(
        self, rows: int, new: int, times: list[tuple[float, float]], weights: str = "same"
    ) -> PassSample:
        return PassSample(
            self._model, rows, statistics.mean(entries for entries, _ in times), new,
            statistics.median(seconds for _, seconds in times),
            weight_bytes=WEIGHT_BYTES.get(weights, self._element), kv_bytes=self._kv_bytes,
            weights=weights,
        )  # fmt: skip


def _residuals(kind: str, errors: Sequence[float]) -> Residuals:
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
