"""Steps of a machine with known constants, whose speed drifts, give these constants back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from magicdec.profiles.calibration.fit import fit_calibration
from magicdec.profiles.calibration.steps import SelectSample, StepSample, Visit
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.costs.step_times import StepTimes

ACCEPTANCE = 0.8


def measured(made, noise, seed=0, kinds=("int8", "same")):
    """What a calibration's own machine would measure, in three rounds."""
    random = np.random.default_rng(seed)

    def jitter():
        return float(np.exp(noise * random.standard_normal()))

    def step(visit, rows, gamma, weights, drift):
        held = min(visit.budget, visit.context)
        drafting = Drafting(held, weights=weights, weight_bytes=1 if weights == "int8" else None)
        costs = step_costs(
            made.model, made.hardware, drafting, rows=rows, context=visit.context, gamma=gamma,
            weight_bytes=4, kv_bytes=4,
        )  # fmt: skip
        draft, verify = (drift * jitter() * float(s) for s in (costs.draft, costs.verify))
        rest = drift * made.hardware.constants.step_s
        hits = random.random((rows, gamma)) < ACCEPTANCE
        return StepSample(
            visit, rows, gamma, weights, visit.context, held - max(0, gamma - 1) / 2,
            StepTimes(verify + rest, draft, verify, 0.0, rest),
            tuple(int(n) for n in hits.cumprod(axis=1).sum(axis=1)),
        )  # fmt: skip

    usual, *others = kinds
    steps = [*((gamma, usual) for gamma in (1, 3, 5)), *((1, other) for other in others)]
    for selector, budget in (("snapkv", 256), ("streaming", 64), ("streaming", 1024)) * 3:
        for context in (6000, 2500, 500):
            visit = Visit(context, selector, budget, (1, 2, 6), tuple(steps))
            selection = made.selection(selector).seconds(context) * jitter()
            yield SelectSample(selector, budget, context, selection)
            for rows in visit.batches:
                for gamma, weights in steps:
                    drift = float(np.exp(4 * noise * random.standard_normal()))
                    plain = step(visit, rows, 0, "same", drift)
                    yield plain
                    found = step(visit, rows, gamma, weights, drift)
                    yield replace(found, times=replace(found.times, plain=plain.step_s))


@pytest.fixture(params=[(0.0, 0.01), (0.05, 0.25)])
def pair(request, calibration):
    noise, tolerance = request.param
    made = calibration()
    samples = list(measured(made, noise))
    fit = fit_calibration(samples, model=made.model, device=made.hardware.device,
                          fingerprint=made.fingerprint)  # fmt: skip
    return made, fit, noise, tolerance


def test_constants_come_back(pair):
    made, fit, noise, tolerance = pair
    true, found = made.hardware.constants, fit.hardware.constants
    for name in ("bandwidth_efficiency", "gemm_efficiency", "attention_efficiency", "layer_s"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=tolerance), name
    assert found.step_s == pytest.approx(true.step_s, rel=0.02 + 2 * noise)
    for residuals in fit.residuals:
        assert residuals.median <= 0.01 + noise, residuals


def test_predictions_come_back_where_nothing_was_measured(pair):
    """Held-out batches, contexts, budgets and draft lengths."""
    made, fit, noise, _ = pair
    for context in (1000, 4000, 7000):
        for rows in (1, 4, 8):
            for budget in (128, 512):
                true, found = (
                    step_costs(made.model, of.hardware, Drafting(budget, weights="int8",
                               weight_bytes=1), rows=rows, context=context, gamma=4,
                               weight_bytes=4, kv_bytes=4)
                    for of in (made, fit)
                )  # fmt: skip
                error = float(found.speedup(4, 3.2) / true.speedup(4, 3.2)) - 1
                assert abs(error) < 0.01 + 1.2 * noise, (context, rows, budget)


def test_selection_and_acceptance_are_what_was_seen(pair):
    made, fit, noise, _ = pair
    for selector in ("snapkv", "streaming"):
        assert fit.selection(selector).seconds(4000) == pytest.approx(
            made.selection(selector).seconds(4000), rel=0.02 + 2 * noise
        )
    seen = fit.acceptance("snapkv", 300, "int8")
    assert seen is not None and seen.budget == 256 and len(seen.rates) == 5
    assert seen.rates[0] == pytest.approx(ACCEPTANCE, abs=0.08)
    assert all(0.5 < rate <= 1 for rate in seen.rates), "conditional on all before"
    assert fit.acceptance("window", 256, "int8") is None


def test_same_weights_alone_are_enough(calibration):
    """A machine without int8 kernels."""
    made = calibration()
    samples = list(measured(made, 0.0, kinds=("same",)))
    fit = fit_calibration(samples, model=made.model, device=made.hardware.device,
                          fingerprint=made.fingerprint)  # fmt: skip
    assert not fit.hardware.by_weights
    assert [r.kind for r in fit.residuals] == ["plain", "verify", "draft, same weights"]
    assert all(r.p90 < 0.02 for r in fit.residuals)
