"""Known constants come back from synthetic passes, and stay physical when these are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.catalog import find_model
from magicdec.profiles.costs.fitting import SINGLE, PassSample, Prior, fit_constants
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.roofline import forward

# What two cores do with SmolLM2-135M, roughly: 10 ms of overhead for 30 layers, 17 GB/s.
CPU = Device("cpu", 24e9, 20e9, 200e9)
TRUE = Constants(
    layer_s=0.0003, bandwidth_efficiency=0.85, gemm_efficiency=0.6, attention_efficiency=0.2
)
MODELS = (find_model("SmolLM2-135M"),)
SHAPES = [
    (rows, entries, new)
    for rows in (1, 4, 16) for entries in (64, 1000, 4000, 16_000) for new in (1, 4, 8)
]  # fmt: skip


def samples(constants=TRUE, noise=0.0, weights="same", weight_bytes=4.0, shapes=SHAPES,
            models=MODELS):  # fmt: skip
    random = np.random.default_rng(7)
    found = []
    for model in models:
        for rows, entries, new in shapes:
            seconds = forward(
                model, Hardware(CPU, constants=constants), rows=rows, entries=entries, new=new,
                weight_bytes=weight_bytes, kv_bytes=4,
            ).total  # fmt: skip
            seconds *= np.exp(noise * random.standard_normal())
            found.append(
                PassSample(model, rows, entries, new, float(seconds), 1, weight_bytes, 4, weights)
            )
    return found


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 1e-3), (0.03, 0.2)])
def test_known_constants_are_found(noise, tolerance):
    fit = fit_constants(samples(noise=noise), CPU)
    for name in SINGLE:
        assert getattr(fit.constants, name) == pytest.approx(getattr(TRUE, name), rel=tolerance)
    assert fit.mean_error < 1e-3 + noise
    assert fit.mean_error <= fit.p90_error
    assert abs(fit.bias) < 1e-3 + noise / 3
    assert fit.free == SINGLE


def test_odd_timings_do_not_bend_the_fit():
    """Three passes in 36 that were interrupted for as long as they ran."""
    found = samples(noise=0.02)
    for i in (3, 20, 30):
        found[i] = replace(found[i], seconds=2 * found[i].seconds)
    fit = fit_constants(found, CPU)
    assert fit.constants.bandwidth_efficiency == pytest.approx(0.85, rel=0.1)
    assert fit.constants.gemm_efficiency == pytest.approx(0.6, rel=0.1)
    assert set(np.argsort(fit.errors)[:3]) == {3, 20, 30}


def test_faster_than_the_data_sheet_stays_within_it():
    impossible = replace(TRUE, bandwidth_efficiency=3.0, gemm_efficiency=2.0)
    fit = fit_constants(samples(impossible), CPU)
    assert fit.constants.bandwidth_efficiency <= 1
    assert fit.constants.gemm_efficiency <= 1
    assert fit.bias > 0  # predicted slower than measured, and it says so


def test_absent_overheads_are_none():
    fit = fit_constants(samples(replace(TRUE, layer_s=0.0)), CPU)
    assert fit.constants.layer_s < 1e-6
    assert fit.mean_error < 0.01


def test_the_start_keeps_what_is_not_free():
    start = replace(TRUE, gemm_efficiency=0.11)
    fit = fit_constants(samples(), CPU, free=("layer_s",), start=start)
    assert replace(fit.constants, layer_s=start.layer_s) == start


def test_two_models_tell_a_pass_from_its_layers():
    true = replace(TRUE, launch_s=0.002)
    short = replace(MODELS[0], layers=5)
    fit = fit_constants(samples(true, models=(*MODELS, short)), CPU, free=("launch_s", *SINGLE))
    assert fit.constants.launch_s == pytest.approx(0.002, rel=0.01)
    assert fit.constants.layer_s == pytest.approx(0.0003, rel=0.01)


def test_a_start_of_nothing_is_no_trap():
    fit = fit_constants(samples(), CPU, free=("layer_s",), start=replace(TRUE, layer_s=0.0))
    assert fit.constants.layer_s == pytest.approx(TRUE.layer_s, rel=1e-3)


def test_int8_weights_are_fitted_alone():
    int8 = replace(TRUE, gemm_efficiency=0.9, layer_s=0.0006)
    mixed = samples() + samples(int8, weights="int8", weight_bytes=1.0)
    with pytest.raises(ConfigError, match="int8 and same"):
        fit_constants(mixed, CPU)
    fit = fit_constants([s for s in mixed if s.weights == "int8"], CPU)
    assert fit.constants.layer_s == pytest.approx(0.0006, rel=0.01)
    assert fit.constants.gemm_efficiency == pytest.approx(0.9, rel=0.01)


def test_a_prior_decides_where_nothing_is_measured():
    """Passes of one token say nothing of GEMM rates."""
    found = samples(shapes=[(1, entries, 1) for entries in (64, 1000, 4000, 16_000)])
    prior = {"gemm_efficiency": Prior(0.37, 0.1)}
    fit = fit_constants(found, CPU, free=("layer_s", "gemm_efficiency"), start=TRUE, priors=prior)
    assert fit.constants.gemm_efficiency == pytest.approx(0.37, rel=0.1)
    many = fit_constants(samples(), CPU, free=SINGLE, priors=prior)
    assert many.constants.gemm_efficiency == pytest.approx(TRUE.gemm_efficiency, rel=0.05)


def test_tensor_parallel_constants_are_found():
    gpu = Device("gpu", 80e9, 2e12, 300e12, link=300e9)
    true = Constants(
        layer_s=1e-4, compact_s=1e-7, bandwidth_efficiency=0.8, gemm_efficiency=0.5,
        link_efficiency=0.25,
    )  # fmt: skip
    found = []
    for name in ("Llama-3.1-8B", "Llama-2-7B"):
        model = find_model(name)
        for rows in (16, 64, 256):
            for entries, new, compact in ((512, 1, True), (8000, 1, False), (8000, 4, False)):
                seconds = forward(model, Hardware(gpu, 8, true), rows=rows, entries=entries,
                                  new=new, compact=compact).total  # fmt: skip
                found.append(
                    PassSample(model, rows, entries, new, float(seconds), 8, compact=compact)
                )
    free = ("layer_s", "compact_s", "bandwidth_efficiency", "gemm_efficiency", "link_efficiency")
    fit = fit_constants(found, gpu, free=free)
    for name in free:
        assert getattr(fit.constants, name) == pytest.approx(getattr(true, name), rel=0.01), name


@pytest.mark.parametrize(
    ("found", "free", "message"),
    [
        (samples()[:2], SINGLE, "2 measured passes cannot determine 4"),
        ([], (), "cannot determine 0"),
        (samples(), ("speed",), "no constant is called 'speed'"),
        ([replace(samples()[0], seconds=0.0), *samples()], SINGLE, "cannot take 0.0"),
        ([replace(samples()[0], seconds=float("nan")), *samples()], SINGLE, "cannot take nan"),
    ],
)
def test_what_cannot_be_fitted_says_so(found, free, message):
    with pytest.raises(ConfigError, match=message):
        fit_constants(found, CPU, free=free)
