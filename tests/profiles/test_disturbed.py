"""What was measured while the machine had other work says so in files, tables and exports."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.events import PhaseTimes, RowStep, StepFinished
from magicdec.profiles.machine.steadiness import Steadiness, beside
from magicdec.profiles.recorded.pooling import pooled
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Cell

Magicdec = Callable[..., tuple[int, str, str]]
BUSY = Steadiness(1, (), 1.08, 1.52, 0.48)
QUIET = Steadiness(1, (), 1.08, None, 0.01)


@pytest.fixture(autouse=True)
def thresholds(idle_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the product: these tests bring machines of their own."""
    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_SCATTER", 1.25)
    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 0.1)


def watched(cell: Cell, *steady: Steadiness | None) -> Cell:
    pairs = zip(cell.repeats, steady, strict=True)
    return replace(cell, repeats=tuple(replace(r, steadiness=s) for r, s in pairs))


@pytest.fixture
def busy(make: Any, tmp_path: Path) -> Path:
    """Two cells: of the first the second of three repeats was disturbed."""
    cells = (
        watched(make.cell(gamma=2), QUIET, BUSY, None),
        watched(make.cell(gamma=3), QUIET, QUIET, QUIET),
    )
    path: Path = make.write(tmp_path / "busy.jsonl", *cells)
    return path


def test_a_file_keeps_what_was_seen_and_its_reader_is_warned(busy: Path, make: Any) -> None:
    profile = read_profile(busy)
    first, second = profile.cells
    assert [repeat.steadiness for repeat in first.repeats] == [QUIET, BUSY, None]
    assert (first.disturbed, first.others) == (True, 0.48)
    assert (second.disturbed, second.others) == (False, 0.01)
    (warning,) = profile.warnings
    assert "γ 2 is a disturbed measurement: verify passes took 1.52 times" in warning
    assert "other programs took 48% of the CPUs" in warning and "more" not in warning
    make.write(busy, first, watched(second, QUIET, BUSY, QUIET))
    assert "so are 1 more" in read_profile(busy).warnings[0]
    make.write(busy, second)
    assert not read_profile(busy).warnings


def test_tables_mark_it_and_exports_hold_the_load(busy: Path, magicdec: Magicdec) -> None:
    code, out, err = magicdec("profile", "show", busy)
    assert code == 0 and "warning: " in err and "48% of the CPUs" in err
    marked = [line for line in out.splitlines() if "×?" in line or "x?" in line]
    assert len(marked) == 1 and "? a disturbed measurement" in out
    code, out, _ = magicdec("profile", "show", busy, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["disturbed_repeats"] for row in rows] == ["1", "0"]
    assert [row["others_cpu_share"] for row in rows] == ["0.48", "0.01"]
    code, _, err = magicdec("profile", "export", busy, "--to", "magicdec")
    assert code == 0 and "48% of the CPUs" in err
    code, _, err = magicdec("profile", "compare", busy, busy)
    assert err.count("48% of the CPUs") == 2


def test_the_notes_beside_an_exported_file_say_it(
    busy: Path, magicdec: Magicdec, tmp_path: Path
) -> None:
    out = tmp_path / "schedule.toml"
    assert magicdec("profile", "export", busy, "--to", "magicdec", "-o", out)[0] == 0
    assert "48% of the CPUs" in (tmp_path / "schedule.toml.notes.md").read_text()


def test_pooled_runs_keep_how_each_was(make: Any) -> None:
    cell = pooled([watched(make.cell(noise=(1.0,)), s) for s in (QUIET, BUSY)])
    assert [repeat.steadiness for repeat in cell.repeats] == [QUIET, BUSY]


def test_passes_one_after_the_other_are_judged_by_the_worse_of_their_loads() -> None:
    def steps(gamma: int, slow: float) -> list[StepFinished]:
        share = (RowStep(0, (1,), "a", gamma, 0),)
        times = [0.1 * (slow if i % 4 == 0 else 1.0) for i in range(20)]
        return [StepFinished(i, gamma, share, PhaseTimes(verify=t)) for i, t in enumerate(times)]

    found = beside(steps(0, 1.0), steps(3, 1.9), 0.02, 0.3)
    assert found.others == 0.3 and found.turns == 1 and found.speedups(1.5) is None
    assert found.plain_scatter == pytest.approx(1.0)
    assert found.speculative_scatter == pytest.approx(1.9)
    assert beside(steps(0, 1.0), (), None).others is None
    assert not beside(steps(0, 1.0), (), 0.05).disturbed
    assert beside(steps(0, 1.5), (), None).disturbed
