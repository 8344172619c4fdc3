"""A grid priced at once: its cells, memory and largest batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.costs.grid import ALL_BOUNDS, Axes, Setup, price
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.memory import memory, usable_bytes
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.modes import modes, room
from magicdec.profiles.costs.roofline import forward
from magicdec.profiles.costs.speculation import Drafting

LLAMA = ModelShape("Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128256, 131072)
SMALL = ModelShape("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128256, 131072, tied=True)
CONSTANTS = Constants(
    launch_s=1e-3, layer_s=5e-5, step_s=4e-4, compact_s=2e-8, bandwidth_efficiency=0.7,
    gemm_efficiency=0.5,
)  # fmt: skip
A100 = Hardware(Device("A100", 80e9, 2.039e12, 312e12, link=3e11), 8, CONSTANTS)
AXES = Axes((1, 8, 64), (1000, 16000, 64000), (256, 1024), (1, 2, 4))


def setup(alpha: float | tuple[float, ...] = 0.8, **changes: Any) -> Setup:
    rates = alpha if isinstance(alpha, tuple) else (alpha,)
    acceptance = AcceptanceRates(rates, constant=not isinstance(alpha, tuple))
    return Setup(LLAMA, A100, acceptance, **changes)


def test_a_cell_is_the_three_passes_and_the_rest_of_a_step() -> None:
    grid = price(setup((0.9, 0.8, 0.7, 0.6)), AXES)
    at = (1, 2, 1, 2)  # 8 rows, 64,000 tokens, budget 1,024, γ 4
    plain, verify = (
        float(forward(LLAMA, A100, rows=8, entries=64000, new=q).total) for q in (1, 5)
    )
    draft = float(forward(LLAMA, A100, rows=8, entries=1024, new=1, compact=True).total)
    omega = 1 + 0.9 + 0.9 * 0.8 + 0.9 * 0.8 * 0.7 + 0.9 * 0.8 * 0.7 * 0.6
    step = 4 * draft + verify + 4e-4
    assert grid.plain[at] == pytest.approx(plain)
    assert grid.draft[at] == pytest.approx(draft)
    assert grid.verify[at] == pytest.approx(verify)
    assert grid.omega[at] == pytest.approx(omega)
    assert grid.tpot[at] == pytest.approx(step / omega)
    assert grid.tokens_per_s[at] == pytest.approx(8 * omega / step)
    assert grid.plain_tokens_per_s[1, 2, 1, 2] == pytest.approx(8 / plain)
    assert grid.speedup[at] == pytest.approx(plain * omega / step)
    assert grid.break_even_length[at] == pytest.approx(step / plain)


def test_every_array_has_the_shape_of_the_axes() -> None:
    grid = price(setup(), AXES)
    for field in dataclasses.fields(grid):
        if field.name != "axes":
            assert getattr(grid, field.name).shape == AXES.shape, field.name


def test_speculation_pays_exactly_above_the_break_even_length() -> None:
    grid = price(setup(0.75), AXES)
    assert ((grid.speedup > 1) == (grid.omega > grid.break_even_length)).all()
    assert (grid.speedup > 1).any() and (grid.speedup < 1).any()


@pytest.mark.parametrize("target", [1.0, 1.3, 2.0])
def test_the_required_alpha_brings_the_target_speedup(target: float) -> None:
    grid = price(setup(target_speedup=target), AXES)
    seen = 0
    for at in np.ndindex(AXES.shape):
        alpha = float(grid.required_alpha[at])
        if np.isnan(alpha):
            best = price(setup(1.0), AXES).speedup[at]
            assert best < target, "not even certain acceptance reaches it"
        elif alpha > 0:
            assert price(setup(alpha), AXES).speedup[at] == pytest.approx(target)
            seen += 1
    assert seen >= 4


def test_best_is_the_fastest_gamma_and_the_shortest_of_equals() -> None:
    grid = price(setup(), AXES)
    assert (grid.at_best(grid.speedup) == grid.speedup.max(axis=-1)).all()
    never = price(setup(0.0), AXES)
    assert (never.best == 0).all() and (never.at_best(never.speedup) < 1).all()


def test_budgets_and_axes_may_come_in_any_order() -> None:
    grid, turned = (
        price(setup(), AXES), price(setup(), Axes((64, 1), (16000,), (1024, 256, None), (4, 1))),
    )  # fmt: skip
    assert turned.speedup[0, 0, 1, 0] == grid.speedup[2, 1, 0, 2]
    assert turned.speedup[1, 0, 0, 1] == grid.speedup[0, 1, 1, 0]
    # With a full budget a draft step is a plain step.
    assert turned.draft[0, 0, 2, 0] == turned.plain[0, 0, 2, 0]


def test_selection_is_paid_at_every_draft_step_and_may_bound_it() -> None:
    free, paid = price(setup(), AXES), price(setup(drafting=Drafting(select_per_token=0.5)), AXES)
    assert (paid.select > 0).all() and (free.select == 0).all()
    assert paid.draft == pytest.approx(free.draft + paid.select)
    assert ALL_BOUNDS[paid.draft_bound[2, 2, 0, 0]] == "selection"
    assert (paid.speedup < free.speedup).all()


def test_a_grid_too_large_names_its_count() -> None:
    with pytest.raises(ConfigError, match=r"1000 × 1001 × 1 × 1 .* 1,001,000 cells"):
        price(setup(), Axes(tuple(range(1, 1001)), tuple(range(1, 1002)), (256,), (1,)))


def test_memory_of_a_known_case() -> None:
    """8.03 billion parameters and 131,072 bytes per token of KV in 16 bits."""
    plain = memory(LLAMA, A100, None, context=31_999)
    assert plain.weights == pytest.approx(16.06e9, rel=1e-3)
    assert float(plain.full_kv_row) == 32_000 * 131_072 and float(plain.draft_kv_row) == 0
    sparse = memory(LLAMA, A100, Drafting(budget=512), context=32_000, gamma=3)
    assert float(sparse.full_kv_row) == 32_004 * 131_072
    assert float(sparse.draft_kv_row) == 515 * 131_072 and sparse.draft_weights == 0
    standard = memory(LLAMA, A100, Drafting(budget=None, model=SMALL), context=32_000, gamma=3)
    assert float(standard.draft_kv_row) == 32_003 * 32_768
    assert standard.draft_weights == pytest.approx(2.47e9, rel=1e-2)
    int8 = memory(LLAMA, A100, Drafting(weights="int8", weight_bytes=1), context=1)
    assert int8.draft_weights == pytest.approx(7.5e9, rel=1e-2)  # all but the embedding
    assert usable_bytes(A100, 0.1) == pytest.approx(576e9)


def test_kv_heads_beyond_the_devices_are_copied() -> None:
    sixteen = dataclasses.replace(A100, count=16)
    one, two = (memory(LLAMA, h, None, context=999).full_kv_row for h in (A100, sixteen))
    assert float(two) == 2 * float(one)


def test_a_budget_beyond_the_context_keeps_the_context() -> None:
    kept = memory(LLAMA, A100, Drafting(budget=4096), context=1000, gamma=1)
    assert float(kept.draft_kv_row) == 1001 * 131_072


@settings(max_examples=60)
@given(
    st.integers(1, 200_000), st.integers(1, 8192) | st.none(), st.integers(1, 8),
    st.floats(0, 0.9), st.booleans(),
)  # fmt: skip
def test_the_largest_batch_fits_and_one_more_row_does_not(
    context: int, budget: int | None, gamma: int, reserve: float, separate: bool
) -> None:
    drafting = Drafting(budget=budget, model=SMALL if separate else None)
    kept = memory(LLAMA, A100, drafting, context=context, gamma=gamma)
    usable = usable_bytes(A100, reserve)
    rows = float(kept.largest_batch(usable))
    assert rows == 0 or float(kept.total(rows)) <= usable * (1 + 1e-12)
    assert float(kept.total(rows + 1)) > usable * (1 - 1e-12)


def test_a_model_that_does_not_fit_has_no_batch() -> None:
    one = dataclasses.replace(A100, device=Device("tiny", 8e9, 1e12, 1e12), count=1)
    grid = price(Setup(LLAMA, one, AcceptanceRates((0.8,), constant=True)), AXES)
    assert (grid.largest_batch == 0).all() and not grid.fits.any()


def test_fits_agrees_with_the_largest_batch() -> None:
    grid = price(setup(), Axes((1, 64, 4096), (1000, 64000), (256, None), (1, 4)))
    rows = np.array(grid.axes.batch).reshape(-1, 1, 1, 1)
    assert (grid.fits == (rows <= grid.largest_batch)).all()
    assert grid.fits.any() and not grid.fits.all()


def test_modes_are_plain_standard_and_sparse_self() -> None:
    asked = setup()
    compared = modes(asked, 512, SMALL)
    assert [mode.name for mode in compared] == ["plain", "standard", "sparse_self"]
    at_2k, at_64k = (
        {found.mode.name: found.largest_batch for found in room(asked, axes, compared)}
        for axes in (Axes((1,), (c,), (512,), (3,)) for c in (2_000, 64_000))
    )
    # (576e9 - 16.06e9) / (64,001 × 131,072) = 66.7 rows
    assert at_64k["plain"] == 66
    # A sparse draft cache is a constant per row: next to nothing at long contexts.
    assert at_64k["plain"] >= at_64k["sparse_self"] > at_64k["standard"]
    assert at_2k["sparse_self"] < 0.8 * at_2k["plain"]


def test_a_draft_model_with_a_budget_is_a_mode_of_its_own() -> None:
    asked = setup(drafting=Drafting(model=SMALL))
    names = [mode.name for mode in modes(asked, 512, SMALL)]
    assert names == ["plain", "standard", "sparse_self", "sparse_model"]
    assert [mode.name for mode in modes(asked, None, SMALL)] == ["plain", "standard"]
