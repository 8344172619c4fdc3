"""A grid that no profile could hold is refused at once; of any other its size is said first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.profiles.recorded.reader import MAX_CELLS

Record = Callable[..., int]
LARGE = ("--context", "1-1000", "--batch", "1-1000", "--gamma", "1-32")
WIDE = ("--context", "60", "--budget", "5-9000", "--gamma", "1-32")


@pytest.mark.parametrize(
    ("command", "grid", "said"),
    [
        ("profile record", LARGE, "1,000 × 1,000 × 32 values of batch, context, gamma"),
        ("profile record", (*WIDE, "--tree", "none,specexec", "--tree-nodes", "1-100"), "8,996 × "),
        ("profile survey", WIDE, "8,996 × 32 values of budget, gamma are 287,872 cells"),
        ("tune", LARGE, "1,000 × 1,000 × 32 values of batch, context, gamma are 32,000,000 cells"),
        ("tune", WIDE, "32 × 8,996 values of gamma, the drafters"),
    ],
)
def test_a_grid_beyond_what_a_profile_holds_is_refused_before_a_model_opens(
    document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: str, grid: tuple[str, ...], said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("magicdec.engine.session.open_session", pytest.fail)
    output = ("-o", "sweep.jsonl") if command == "profile record" else ()
    single = ("--selector", "streaming")
    arguments = [*command.split(), str(document), *grid, *single, *output]
    assert run_command_line(arguments) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and said in error
    assert f"{MAX_CELLS:,} is the most that a profile holds, sweep in wider steps" in error
    assert not Path("sweep.jsonl").exists()


def test_count_and_time_are_said_before_a_sweep_and_a_survey_start(
    record: Record, model: Path, document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record("-o", "sweep.jsonl", "--repeat", "1", quiet=False) == 0
    lines = capsys.readouterr().err.splitlines()
    sizes = [line for line in lines if "to measure" in line]
    assert len(sizes) == 1 and re.fullmatch(
        r"4 cells to measure, about \d+:\d\d, guessed: this machine is not calibrated", sizes[0]
    )
    assert lines.index(sizes[0]) < next(i for i, line in enumerate(lines) if "cell 1/4" in line)

    assert record("-o", "sweep.jsonl", "--repeat", "1", "--gamma", "1,2,3", quiet=False) == 0
    assert "2 cells to measure, about " in capsys.readouterr().err, "those that are not there yet"

    arguments = ["profile", "survey", str(document), "--model", str(model), "--context", "60",
                 "--max-new-tokens", "6", "--budget", "20,40", "--gamma", "1-3"]  # fmt: skip
    assert run_command_line(arguments) == 0
    error = capsys.readouterr().err
    assert 0 < error.find("6 cells to measure, about ") < error.find("survey: snapkv 20")


def test_a_large_prediction_says_its_size_first(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "--hardware", "H100", "--model", "llama-3.1-8b", "--batch", "1-400",
                 "--context", "1000-1249", "--gamma", "1", "--alpha", ".8",
                 "--heatmap"]  # fmt: skip
    assert run_command_line(arguments) == 0
    assert capsys.readouterr().err == "note: 100,000 cells, about 0:02\n"
