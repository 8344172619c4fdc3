"""What interrupts a sweep costs the cell at hand, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.record import Bench
from magicdec.profiles.recorded.writer import ProfileWriter

Record = Callable[..., int]
ONE = ("--context", "60", "--gamma", "1,3", "--budget", "40", "--max-new-tokens", "6")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """γ of the cells that are really measured, as they begin."""
    found: list[int] = []
    measure = Bench.measure

    def spying(self, key, config, repeats):  # type: ignore[no-untyped-def]
        found.append(key.gamma)
        return measure(self, key, config, repeats)

    monkeypatch.setattr(Bench, "measure", spying)
    return found


def test_ctrl_c_keeps_finished_cells_and_the_same_command_goes_on(
    record: Record, measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "sweep.jsonl"
    run = Bench.run

    def interrupted(self, config):  # type: ignore[no-untyped-def]
        if config.gamma == 3:
            raise KeyboardInterrupt
        return run(self, config)

    with monkeypatch.context() as patch:
        patch.setattr(Bench, "run", interrupted)
        assert record("-o", str(path), grid=ONE) == 130
    captured = capsys.readouterr()
    assert captured.out == "" and "interrupted: " in captured.err and path.name in captured.err
    first = path.read_bytes()
    assert str(tmp_path).encode() not in first, "no folder of the user's"
    assert [cell.key.gamma for cell in read_profile(path).cells] == [1]

    path.write_bytes(first + b'{"key":{"batch":2,"cont')  # and then the power failed
    measured.clear()
    assert record("-o", str(path), grid=ONE) == 0
    assert measured == [3]
    assert path.read_bytes().startswith(first), "what was there is not written anew"
    profile = read_profile(path)
    assert [cell.key.gamma for cell in profile.cells] == [1, 3] and not profile.warnings

    measured.clear()
    whole = path.read_bytes()
    assert record("-o", str(path), grid=ONE) == 0
    assert measured == [] and path.read_bytes() == whole
    capsys.readouterr()
    assert record("-o", str(path), grid=ONE, quiet=False) == 0
    assert f"2 of 2 cells are in {path} already" in capsys.readouterr().err

    # The same file for another workload is refused before anything is measured.
    for different in (["--max-new-tokens", "7"], ["--kv-dtype", "bfloat16"]):
        assert record("-o", str(path), *different, grid=ONE) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1 and "give another file" in error
    (tmp_path / "doc.txt").write_text("Another text altogether. " * 20)
    assert record("-o", str(path), grid=ONE) == 2
    error = capsys.readouterr().err
    assert "records another text (doc.txt " in error and len(error.splitlines()) == 1
    assert measured == [] and path.read_bytes() == whole


def test_a_full_disk_ends_the_sweep_and_keeps_what_is_finished(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path, append = tmp_path / "sweep.jsonl", ProfileWriter.append

    def full(self, cell):  # type: ignore[no-untyped-def]
        if cell.key.gamma == 3:
            raise OSError(28, "No space left on device")
        append(self, cell)

    monkeypatch.setattr(ProfileWriter, "append", full)
    assert record("-o", str(path), grid=ONE) == 1
    out, error = capsys.readouterr()
    assert len(error.splitlines()) == 1 and "No space left on device" in error
    assert error.endswith("the cell that it lacks is on stdout\n")
    assert [cell.key.gamma for cell in read_profile(path).cells] == [1]
    with path.open("a") as file:  # what could not be stored is the line itself
        file.write(out)
    assert [cell.key.gamma for cell in read_profile(path).cells] == [1, 3]


def test_a_cell_that_fails_is_recorded_and_the_others_go_on(
    record: Record, measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from magicdec.engine.errors import OutOfMemoryError
    from magicdec.engine.session import Session

    path, plan = tmp_path / "sweep.jsonl", Session.plan_memory

    def forecast(self, requests, config, batch):  # type: ignore[no-untyped-def]
        if config.gamma == 1:
            raise OutOfMemoryError("the run needs 9 GiB, 1 GiB is free; try --batch 1")
        return plan(self, requests, config, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "plan_memory", forecast)
        assert record("-o", str(path), grid=ONE) == 1
    error = capsys.readouterr().err
    assert "1 cell failed" in error and len(error.splitlines()) == 1
    failed, other = read_profile(path).cells
    assert failed.status == "failed" and "needs 9 GiB" in str(failed.error)
    assert failed.key.gamma == 1 and not failed.repeats
    assert other.status == "ok" and other.key.gamma == 3

    measured.clear()
    assert record("-o", str(path), grid=ONE) == 0, "a failed cell is tried anew"
    assert measured == [1]
    assert {cell.key.gamma: cell.status for cell in read_profile(path).cells} == {1: "ok", 3: "ok"}
    assert len(path.read_text().splitlines()) == 1 + 3


def test_documents_that_cannot_fill_the_context_fail_its_cells_only(
    record: Record, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path), "--context", "60,5000", "--gamma", "1", grid=ONE) == 1
    cells = {cell.key.context: cell for cell in read_profile(path).cells}
    assert cells[60].status == "ok" and cells[5000].status == "failed"
    assert "give longer ones" in str(cells[5000].error)
    assert json.loads(path.read_text().splitlines()[1])["key"]["context"] == 5000
