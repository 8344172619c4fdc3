"""What `magicdec predict` refuses, each in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.engine.draft_spec import MEASURED_BY

Refused = Callable[[list[str]], str]
BASE = ("predict", "--hardware", "8xA100", "--model", "llama-3.1-8b")
PRICED = ("--model", "llama-3.1-8b", "--hardware", "H100")


def test_a_table_too_long_points_at_what_can_hold_it(refused: Refused) -> None:
    said = refused([*BASE, "--batch", "1-100", "--context", "1000-10000+1000"])
    assert "1,000 rows" in said and "--heatmap" in said and "--format csv" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--alpha", "1.2"], "--alpha: an acceptance rate is in 0..1, got 1.2"),
        (["--alpha", "nan"], "got nan"),
        (["--alpha", "-0.1"], "got -0.1"),
        (["--alpha", ""], "--alpha: '' is not a number"),
        (["--alpha", ".9,,.8"], "'' is not a number"),
        (["--alpha", "high"], "'high' is not a number"),
        (["--alpha", "@nowhere.json"], "there is no file 'nowhere.json'"),
        (["--alpha", "@"], "--alpha: '.' is a directory"),
        (["--alpha", ".9,.8", "--gamma", "1-4"], "end --gamma at 2"),
        (["--batch", "0"], "--batch: 0 is outside 1..100,000"),
        (["--batch", ""], "--batch '' has an empty item"),
        (["--batch", "8-1"], "write 1-8"),
        (["--context", "1.5k"], "--context: '1.5k'"),
        (["--context", "1000000000"], "--context: 1000000000 is outside"),
        (["--gamma", "0"], "--gamma: 0 is outside 1..32"),
        (["--gamma", "33"], "--gamma: 33 is outside 1..32"),
        (["--budget", "0"], "--budget: 0"),
        (["--budget", "half"], "'half'"),
        (["--budget", ""], "--budget '' has an empty item"),
        (["--batch", "1-2000", "--context", "1000-1999"], "2,000,000 cells"),
        (["--reserve", "1"], "--reserve"),
        (["--reserve", "nan"], "--reserve"),
        (["--target-speedup", "0"], "--target-speedup"),
        (["--target-speedup", "nan"], "--target-speedup"),
        (["--select-reads", "-1"], "--select-reads"),
        (["--weight-dtype", "int3"], "--weight-dtype"),
        (["--draft-weights", "int4"], "--draft-weights"),
        (["--draft-model", "llama-9"], "no model is called 'llama-9'"),
        (["--hardware", "8xZ100"], "H100"),
        (["--hardware", "0xH100"], "number of devices"),
        (["--model", "llama-3.1-8c"], "Llama-3.1-8B"),
        (["--model", ""], "no model is called ''"),
        (["--format", "yaml"], "yaml"),
        (["--format", "csv", "--heatmap"], "--svg map.svg"),
        (["-o", "nowhere/a.csv"], "nowhere/a.csv: there is no folder 'nowhere'; create it"),
        (["-o", "."], "--output . is a folder"),
        (["-o", "a.svg", "--svg", "./a.svg"], "a file of its own"),
        (["-o", "map.svg"], "--svg map.svg"),
        (["--svg", "nowhere/a.svg"], "nowhere/a.svg: there is no folder"),
        (["--svg", "a.svg", "--budget", "1,2"], "--svg draws one budget"),
    ],
)
def test_a_wrong_value_is_one_line(arguments: list[str], said: str, refused: Refused) -> None:
    assert said in refused([*BASE, *arguments])


@pytest.mark.parametrize("option", ["-o", "--svg"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("mine.toml", ["--hardware", "mine.toml"]),
        ("model/config.json", ["--model", "model"]),
        ("run.json", ["--alpha", "@run.json"]),
        ("p.jsonl", []),  # not read, but a profile
    ],
)
def test_what_is_read_or_was_measured_is_not_written_over(
    refused: Refused, option: str, name: str, given: list[str]
) -> None:
    Path("model").mkdir()
    Path(name).write_text('{"schema":"magicdec.profile/2", "created":')
    said = refused([*BASE, *given, option, name])
    assert name in said and said.endswith("; give another file\n")
    assert Path(name).read_text() == '{"schema":"magicdec.profile/2", "created":'


@pytest.mark.parametrize(
    "arguments",
    [("--draft", "layers:99", "--alpha", ".2"), ("--draft", "layers:x"), ("--draft", "layers:16"),
     ("--draft", "lookup", "--budget", "64"),
     ("--draft", "lookup", "--draft-model", "llama-3.2-1b"), ("--draft", "no-such-model"),
     ("--draft", "lookup+self"), ("--draft", "layers:16+self"), ("--draft", "llama-3.2-1b+self")],
)  # fmt: skip
def test_drafts_that_cannot_be_priced_are_one_line(
    refused: Refused, arguments: tuple[str, ...]
) -> None:
    said = refused(["predict", *PRICED, *arguments])
    assert arguments[1].partition(":")[0] in said
    assert (MEASURED_BY in said) == arguments[1].endswith("+self")
