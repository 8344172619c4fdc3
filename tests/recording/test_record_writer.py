"""Who may go on with a file: one process, on the machine that began it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.profiles.storage.reading import read_profile
from magicdec.profiles.storage.writing import ProfileWriter

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


def test_the_prefill_is_recorded_with_what_of_it_was_there(record: Record, tmp_path: Path) -> None:
    """The longest context is computed; the shorter one begins alike and is only copied."""
    path = tmp_path / "sweep.jsonl"
    asked = ("--context", "60,90", "--gamma", "1", "--no-prefill-cache")
    assert record("-o", str(path), *asked, grid=ONE) == 0
    for cell in read_profile(path).cells:
        found = cell.prefill
        assert found is not None and found.seconds > 0
        assert found.prompt_tokens >= 2 * 0.9 * cell.key.context - 20
        if cell.key.context == 90:
            assert found.reused_tokens < found.prompt_tokens
        else:
            assert found.reused_tokens == found.prompt_tokens
