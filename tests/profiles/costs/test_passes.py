"""The time of a pass: its limits by hand, its direction in every argument, its speed on a grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.profiles.costs.catalog import find_hardware, find_model, list_hardware, list_models
from magicdec.profiles.costs.hardware import Constants, Hardware
from magicdec.profiles.costs.roofline import BOUNDS, forward

models = st.sampled_from(list_models())
machines = st.builds(
    lambda hardware, count: replace(hardware, count=count),
    st.sampled_from(list_hardware()), st.sampled_from([1, 2, 3, 8, 64]),
)  # fmt: skip
loads = st.fixed_dictionaries({
    "rows": st.integers(1, 512), "entries": st.integers(0, 200_000), "new": st.integers(1, 32),
    "weight_bytes": st.sampled_from([0.5, 1.0, 2.0]), "kv_bytes": st.sampled_from([1.0, 2.0]),
})  # fmt: skip
KEYS = ["rows", "entries", "new", "weight_bytes", "kv_bytes"]


def test_weights_alone(model, ideal):
    # A layer has 4·2·2·(2 + 1) weights for attention and 3·4·4 in its MLP, the head 10·4.
    streamed = 2 * (48 + 48) + 40
    assert model.streamed == streamed
    cost = forward(model, replace(ideal, device=replace(ideal.device, flops=1e30)), rows=1,
                   entries=0, new=1)  # fmt: skip
    assert cost.total == pytest.approx(streamed * 2 / 100)
    assert BOUNDS[int(cost.bound)] == "weights"


def test_kv_alone(model, ideal):
    device = replace(ideal.device, flops=1e30)
    cost = forward(model, replace(ideal, device=device), rows=3, entries=1000, new=1)
    assert cost.kv == pytest.approx(3 * 1000 * (2 * 2 * 1 * 2 * 2) / 100)  # K, V, layers, heads, D
    assert cost.total == pytest.approx(cost.kv + cost.weights)
    assert BOUNDS[int(cost.bound)] == "KV"


def test_arithmetic_alone(model, ideal):
    device = replace(ideal.device, bandwidth=1e30)
    cost = forward(model, replace(ideal, device=device), rows=3, entries=50, new=7)
    gemm = 2 * model.streamed * 3 * 7 / 1000
    attention = 2 * 2 * (3 * 7) * 50 * (2 * 2) * 2 / 1000  # QK and AV, heads·D, layers
    assert cost.total == pytest.approx(gemm + attention)
    assert BOUNDS[int(cost.bound)] == "compute"


def test_overheads_count_whatever_is_computed(model, ideal):
    slow = replace(ideal, constants=replace(ideal.constants, launch_s=5.0, layer_s=3.0))
    free, paid = (forward(model, h, rows=2, entries=9, new=3).total for h in (ideal, slow))
    assert paid - free == pytest.approx(5 + 2 * 3)


def test_a_compact_cache_costs_by_row_layer_and_width(model, ideal):
    paying = replace(ideal, constants=replace(ideal.constants, compact_s=7.0))
    kept, full = (
        forward(model, paying, rows=5, entries=9, new=1, compact=c).total for c in (True, False)
    )
    assert kept - full == pytest.approx(7.0 * 5 * 2 * 4 / 1000)


def test_devices_share_the_work_and_exchange_what_they_found(model, ideal):
    one, four = (forward(model, replace(ideal, count=n), rows=3, entries=10, new=2) for n in (1, 4))
    assert four.weights == pytest.approx(one.weights / 4)
    assert four.gemm == pytest.approx(one.gemm / 4)
    assert four.kv == pytest.approx(one.kv)  # one KV head cannot be split
    # Two all-reduces a layer of 4 numbers in 2 bytes, sent twice; 10 logits in 4 bytes, once.
    exchanged = (2 * 2 * 2 * 4 * 2 + 10 * 4) * 3 / 4
    assert four.overhead - one.overhead == pytest.approx(3 * 2 * exchanged / 50)


@pytest.mark.parametrize(
    ("kv_heads", "count", "worth"), [(8, 8, 8), (4, 8, 4), (12, 8, 6), (8, 3, 8 / 3), (32, 8, 8)]
)
def test_kv_heads_stay_whole(model, ideal, kv_heads, count, worth):
    """The device with most KV heads decides."""
    wide = replace(model, heads=kv_heads, kv_heads=kv_heads)
    one, many = (
        forward(wide, replace(ideal, count=n), rows=1, entries=10, new=1).kv for n in (1, count)
    )
    assert one / many == pytest.approx(worth)


def test_reading_and_arithmetic_overlap_in_part(model, ideal):
    cost = forward(model, ideal, rows=2, entries=0, new=1)
    longest = max(cost.weights, cost.gemm)
    assert longest < cost.total < cost.weights + cost.gemm
    assert cost.total == pytest.approx(
        np.linalg.norm([cost.weights, cost.gemm], Constants().overlap)
    )


def test_other_weights_have_constants_of_their_own(model, ideal):
    int8 = replace(ideal.constants, layer_s=11.0)
    both = replace(ideal, by_weights={"int8": int8})
    same, other, unknown = (
        forward(model, both, rows=1, entries=0, new=1, weights=kind).overhead
        for kind in ("same", "int8", "int4")
    )
    assert (same, other, unknown) == (0, 22, 0)


@settings(deadline=None)
@given(models, machines, loads, st.sampled_from(KEYS), st.floats(1.01, 4))
def test_more_of_anything_never_takes_less(model, hardware, load, key, factor):
    more = {**load, key: load[key] * factor + (key == "entries")}
    less_s, more_s = (forward(model, hardware, **given).total for given in (load, more))
    assert np.isfinite(more_s)
    assert more_s >= less_s
    if key in ("rows", "entries"):
        assert more_s > less_s


def test_a_large_grid_is_one_call():
    rows, entries, new = np.ogrid[1:51, 1000:101_000:2000, 1:41]
    cost = forward(find_model("Llama-3.1-8B"), find_hardware("8xA100"), rows=rows,
                   entries=entries, new=new)  # fmt: skip
    assert cost.total.shape == cost.bound.shape == (50, 50, 40)
    single = forward(find_model("Llama-3.1-8B"), find_hardware("8xA100"), rows=50, entries=99_000,
                     new=40)  # fmt: skip
    assert cost.total[-1, -1, -1] == single.total
    assert (np.diff(cost.total, axis=0) > 0).all()
    assert (np.diff(cost.total, axis=1) > 0).all()


def test_the_defaults_are_usable(model, ideal):
    default = Hardware(ideal.device, 2, Constants())
    assert forward(model, default, rows=1, entries=1, new=1).total > 0
