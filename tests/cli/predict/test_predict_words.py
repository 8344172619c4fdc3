"""The sentences say what the grid says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from magicdec.cli.predict.words import conclusion, outlook
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.costs.break_even import Outlook
from magicdec.profiles.costs.catalog import find_hardware, find_model
from magicdec.profiles.costs.grid import Axes, Grid, Setup, price


def grid(axes: Axes, alpha: float = 0.8, hardware: str = "8xA100") -> Grid:
    acceptance = AcceptanceRates((alpha,), constant=True)
    return price(Setup(find_model("llama-3.1-8b"), find_hardware(hardware), acceptance), axes)


MIXED = Axes((1, 8, 128), (2000, 32000, 128000), (512,), (1, 2, 3, 4))


def test_the_count_the_best_and_the_least() -> None:
    found = grid(MIXED)
    speedup, fits = found.at_best(found.speedup)[..., 0], found.at_best(found.fits)[..., 0]
    assert not fits.all() and fits.any()
    [said] = conclusion(found)
    pays, cells = int((speedup[fits] > 1).sum()), int(fits.sum())
    assert f"pays in {pays} of {cells} cells that fit in memory" in said
    assert f": {speedup[fits].max():.2f}× with γ" in said
    assert f"The least is {speedup[fits].min():.2f}×" in said
    needs, gets = map(
        float, re.findall(r"needs (\d+\.\d+) tokens per step and gets (\d+\.\d+)", said)[0]
    )
    assert needs > gets


def test_where_each_batch_starts_to_gain() -> None:
    found = grid(MIXED)
    speedup, fits = found.at_best(found.speedup)[..., 0], found.at_best(found.fits)[..., 0]
    [said] = conclusion(found)
    for row, batch in enumerate(MIXED.batch):
        gains = [
            c for c, s, f in zip(MIXED.context, speedup[row], fits[row], strict=True) if f and s > 1
        ]
        where = f"from context {gains[0]:,}" if gains else "nowhere"
        [named] = [part for part in re.split(r", (?=from|nowhere|at every)", said) if where in part]
        assert re.search(rf"\b{batch}\b", named.partition(" at B ")[2])


def test_all_none_one_and_nothing() -> None:
    small = Axes((64, 128), (32000,), (512,), (2, 3))
    assert "pays in all 2 cells, most" in conclusion(grid(small))[0]
    assert "pays in none of 2 cells." in conclusion(grid(small, alpha=0.1))[0]
    one = Axes((64,), (32000,), (512,), (2,))
    assert conclusion(grid(one))[0].startswith("Speculation pays at B 64, context 32,000:")
    never = conclusion(grid(one, alpha=0.1))[0]
    assert never.startswith("Speculation does not pay at B 64") and "There a draft step" in never
    assert conclusion(grid(Axes((4096,), (128000,), (512,), (2,)))) == [
        "Nothing of this fits in memory."
    ]


def test_the_longest_swept_gamma_is_marked_as_perhaps_not_the_best() -> None:
    axes = Axes((32,), (128000,), (512,), (1, 2))
    assert "γ 2 (the longest swept)" in conclusion(grid(axes))[0]
    assert "swept" not in conclusion(grid(Axes((1,), (1000,), (512,), (1, 2, 3))))[0]


@pytest.mark.parametrize("budgets", [(512,), (512, None)])
def test_budgets_are_named_when_there_are_several(budgets: tuple[int | None, ...]) -> None:
    found = grid(Axes((8, 32), (8000, 32000), budgets, (1, 2)))
    lines = conclusion(found, range(len(budgets)))
    assert len(lines) == len(budgets)
    assert [line.startswith("Budget") for line in lines] == [len(budgets) > 1] * len(budgets)
    assert np.array_equal(found.best.shape, (2, 2, len(budgets)))


def test_thresholds_that_do_not_exist_are_said_to_be_none() -> None:
    [line] = outlook([Outlook(512, 3, 1234.5, None)])
    assert line == "growth threshold 1,234 tokens, break-even context none (γ 3)"
