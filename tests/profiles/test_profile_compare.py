"""`profile compare`: noise is no difference, one repeat is no test, and a gate stops for losses."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from magicdec.profiles.recorded.compare import Change, holm, welch
from magicdec.profiles.recorded.schema import Cell, Verdict

Noise = Callable[[float], list[float]]


@pytest.fixture
def noise() -> Noise:
    dice = random.Random(3)
    return lambda level: [level * (1 + dice.gauss(0, 0.01)) for _ in range(5)]


@pytest.fixture
def files(make, tmp_path) -> Callable[[list[Cell], list[Cell]], tuple[Path, Path]]:
    def write(a: list[Cell], b: list[Cell]) -> tuple[Path, Path]:
        return make.write(tmp_path / "a.jsonl", *a), make.write(tmp_path / "b.jsonl", *b)

    return write


def verdicts(out: str) -> dict[tuple[int, str], Any]:
    cells = json.loads(out)["cells"]
    return {
        (cell["key"]["batch"], figure): cell[figure]
        for cell in cells
        for figure in ("tokens_per_s", "speedup")
    }


def test_a_slower_cell_is_found_and_the_gate_closes(make, files, noise, magicdec):
    a, b = files(
        [make.cell(1, noise=noise(1.0)), make.cell(4, noise=noise(1.0))],
        [make.cell(1, noise=noise(1.0)), make.cell(4, noise=noise(1.25))],
    )
    command = ("profile", "compare", a, b, "--format", "json")
    code, out, err = magicdec(*command)
    found = verdicts(out)
    assert code == 0 and "regression" not in err
    assert found[4, "tokens_per_s"]["verdict"] == found[4, "speedup"]["verdict"] == "slower"
    assert found[4, "tokens_per_s"]["ratio"] == pytest.approx(0.8, rel=0.03)
    assert found[1, "tokens_per_s"]["verdict"] == "within noise"
    code, out, err = magicdec(*command, "--threshold", "5%")
    assert code == 1 and err.count("regression: B 4") == 2
    assert len(json.loads(out)["regressions"]) == 2
    assert magicdec(*command, "--threshold", "0.05", "--by", "speedup")[0] == 1
    code, _, err = magicdec(*command, "--threshold", "30%")
    assert code == 0 and "no significant regression" in err


def test_a_figure_is_what_show_says_of_the_cell(make, files, magicdec):
    cell = make.cell(noise=(1.0, 1.1, 3.0))
    a, b = files([cell], [make.cell(noise=(1.0, 1.1, 1.2))])
    found = verdicts(magicdec("profile", "compare", a, b, "--format", "json")[1])
    assert found[1, "speedup"]["a"] == found[1, "speedup"]["b"] == pytest.approx(cell.speedup)
    assert found[1, "tokens_per_s"]["a"] == pytest.approx(cell.tokens_per_s)
    assert found[1, "speedup"]["verdict"] == "within noise"


def test_medians_and_means_that_disagree_are_noise():
    change = Change("speedup", 1.0, 1.1, (9, 9), 0.01, agree=False)
    assert change.verdict == "within noise" and not change.regressed(0.0)


def test_regressions_are_listed_up_to_ten(make, files, noise, magicdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    a, b = files(
        [make.cell(batch, noise=noise(1.0)) for batch in range(1, 15)],
        [make.cell(batch, noise=noise(1.5)) for batch in range(1, 15)],
    )
    code, out, err = magicdec("profile", "compare", a, b, "--threshold", "5%")
    assert code == 1
    assert err.count("regression: ") == 10 and "and 18 more regressions" in err
    heading = out.splitlines()[0].split()
    assert heading[0] == "batch" and len(set(heading)) == len(heading)
    assert all(len(line) <= 60 for line in out.splitlines())
    document = magicdec("profile", "compare", a, b, "--threshold", "5%", "--format", "json")[1]
    assert len(json.loads(document)["regressions"]) == 28


def test_a_faster_cell_is_no_regression(make, files, noise, magicdec):
    a, b = files([make.cell(noise=noise(1.0))], [make.cell(noise=noise(0.8))])
    code, out, _ = magicdec("profile", "compare", a, b, "--threshold", "0%", "--format", "json")
    assert code == 0
    assert verdicts(out)[1, "speedup"]["verdict"] == "faster"


def test_one_repeat_is_not_tested_and_stops_nothing(make, files, magicdec):
    a, b = files([make.cell(noise=(1.0,))], [make.cell(noise=(9.0,))])
    code, out, err = magicdec("profile", "compare", a, b, "--threshold", "1%")
    assert code == 0 and "one repeat" in out and "regression:" not in err
    assert "2 of 2 figures could not be tested; record both with --repeat 3" in err
    code, out, _ = magicdec("profile", "compare", a, b, "--format", "json")
    assert verdicts(out)[1, "speedup"] == {
        "a": pytest.approx(3.4 / 1.8), "b": pytest.approx(3.4 / 16.2), "p": None,
        "ratio": pytest.approx(1 / 9), "repeats": [1, 1], "verdict": "not testable",
    }  # fmt: skip


def test_what_broke_is_a_regression_even_without_figures(make, files, magicdec):
    ok = make.cell(noise=(1.0,))
    failed = Cell(key=ok.key, status="failed", error="out of memory")
    lossy = replace(make.cell(4), lossless=Verdict(True, False, False))
    a, b = files([ok, make.cell(4)], [failed, lossy])
    code, out, err = magicdec("profile", "compare", a, b, "--threshold", "50%")
    assert code == 1
    assert "failed in B: out of memory" in err and "lossless in A, not in B" in err
    assert "0.00" not in out  # not measured is a dash


def test_cells_of_one_side_are_listed(make, files, magicdec):
    a, b = files([make.cell(1), make.cell(2)], [make.cell(1), make.cell(8)])
    code, out, err = magicdec("profile", "compare", a, b, "--format", "json")
    assert code == 0
    assert "only in A: B 2" in err and "only in B: B 8" in err
    document = json.loads(out)
    assert [key["batch"] for key in document["only_a"] + document["only_b"]] == [2, 8]


def test_nothing_in_common_is_said(make, files, magicdec):
    a, b = files([make.cell(1)], [make.cell(2)])
    code, out, err = magicdec("profile", "compare", a, b)
    assert (code, out) == (0, "") and "no cell is in both" in err


def test_other_machines_and_workloads_are_warned_about(make, magicdec, tmp_path):
    a = make.write(tmp_path / "a.jsonl", make.cell())
    make.header = replace(
        make.header, environment={**make.header.environment, "threads": 8}, documents=()
    )
    b = make.write(tmp_path / "b.jsonl", make.cell())
    _, _, err = magicdec("profile", "compare", a, b)
    assert "differ in threads: 2 and 8" in err and "differ in documents" in err
    assert "differ" not in magicdec("profile", "compare", a, a)[2]


def test_rows_for_spreadsheets(make, files, noise, magicdec):
    a, b = files([make.cell(noise=noise(1.0))], [make.cell(noise=noise(1.2))])
    out = magicdec("profile", "compare", a, b, "--format", "csv")[1]
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["figure"] for row in rows] == ["tokens_per_s", "speedup"]
    assert float(rows[0]["ratio"]) == pytest.approx(float(rows[0]["b"]) / float(rows[0]["a"]))
    assert len(magicdec("profile", "compare", a, b, "--format", "md")[1].splitlines()) == 4


@pytest.mark.parametrize("threshold", ["x", "-1%", "100%", "nan", "5 %%", ""])
def test_thresholds_that_are_none(make, files, magicdec, threshold):
    a, b = files([make.cell()], [make.cell()])
    code, _, err = magicdec("profile", "compare", a, b, "--threshold", threshold)
    assert code == 2 and "--threshold" in err


samples = st.lists(st.floats(-3, 3), min_size=2, max_size=6)


@given(samples, samples)
@settings(max_examples=100, deadline=None)
def test_welch_is_scipys(a, b):
    if max(a) - min(a) < 1e-3 or max(b) - min(b) < 1e-3:
        return
    assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-6)


def test_no_spread_is_no_test():
    assert welch([1.0, 1.0], [2.0, 2.0]) is None
    assert welch([1.0], [2.0, 3.0]) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_never_lowers(values):
    adjusted = holm(values)
    assert all(raw <= p <= 1 for raw, p in zip(values, adjusted, strict=True))
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert [adjusted[i] for i in order] == sorted(adjusted)
    assert min(adjusted) == min(1.0, min(values) * len(values))


def test_a_whole_grid_of_noise_rarely_alarms(make, files, magicdec):
    """40 cells that are equal: unadjusted, two of them would be called different."""
    dice = random.Random(0)

    def cells() -> list[Cell]:
        return [
            make.cell(batch, noise=[1 + dice.gauss(0, 0.03) for _ in range(3)])
            for batch in range(1, 41)
        ]

    a, b = files(cells(), cells())
    out = magicdec("profile", "compare", a, b, "--format", "json", "--threshold", "0%")[1]
    assert {found["verdict"] for found in verdicts(out).values()} == {"within noise"}
