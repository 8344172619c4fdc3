"""Who may go on with a file: one process, on the machine that began it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.writer import ProfileWriter

Record = Callable[..., int]
ONE = ("--context", "60", "--gamma", "1", "--budget", "40", "--max-new-tokens", "6")


def test_a_second_writer_gets_one_clear_line(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path), grid=ONE) == 0
    whole = path.read_bytes()
    capsys.readouterr()
    with ProfileWriter(path, read_profile(path).header):
        assert record("-o", str(path), "--gamma", "2", grid=ONE) == 2
        said = capsys.readouterr().err
        assert "is being written by another process" in said and said.count("\n") == 1
        assert path.read_bytes() == whole
    assert record("-o", str(path), "--gamma", "2", grid=ONE) == 0, "the lock goes with its owner"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("threads", 96, "threads 96, now"), ("torch", "1.0", "torch 1.0, now"),
     ("device_name", "Abacus", "processor Abacus, now")],
)  # fmt: skip
def test_another_machine_does_not_go_on(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: object,
    said: str,
) -> None:  # fmt: skip
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path), grid=ONE) == 0
    header, *cells = path.read_text().splitlines()
    changed = json.loads(header)
    changed["environment"][name] = value
    path.write_text("\n".join([json.dumps(changed), *cells]) + "\n")
    capsys.readouterr()
    assert record("-o", str(path), "--gamma", "2", grid=ONE) == 2
    error = capsys.readouterr().err
    assert f"was measured elsewhere ({said}" in error and "give another file" in error
    assert error.count("\n") == 1


def test_the_prefill_is_recorded_once_for_all_cells_of_its_rows(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is that of the first pass: the passes that are timed find the prompts there already."""
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path), "--gamma", "1,2", "--no-prefill-cache", grid=ONE) == 0
    first, second = read_profile(path).cells
    assert first.prefill is not None and first.prefill == second.prefill
    assert first.prefill.seconds > 0 and first.prefill.reused_tokens == 0
    assert 100 < first.prefill.prompt_tokens <= 2 * 60
    assert not any(repeat.speculative.prefilled for repeat in first.repeats)
    assert run_command_line(["profile", "show", str(path), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["prefill_prompt_tokens"] for row in rows} == {str(first.prefill.prompt_tokens)}
