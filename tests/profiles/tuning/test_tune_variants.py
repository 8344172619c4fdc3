"""Cascades, trees and γ policies in `magicdec tune`: run, compared, recommended, or refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tune.page import command_line
from magicdec.engine.config import DecodeConfig
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.tuning.candidate import PLAIN, Place

Tune = Callable[..., str]
PLACE = ("--batch", "2", "--context", "120", "--budget", "40", "--verify", "1", "--repeats", "1")
PLACE += ("--draft-weights", "int8")
JSON = ("--format", "json", "-q")
TREE = ("--tree", "none,specexec", "--tree-nodes", "6")


def test_each_is_run_over_what_it_builds_on(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quest drafts over all that it chooses again and again: no tree, no cascade."""
    drafts = ("--draft", "lookup+self", "--selector", "snapkv,quest", "--gamma", "2,adaptive,auto")
    cells = ("-o", "cells.jsonl")
    document = json.loads(tune(*PLACE, *drafts, *TREE, *cells, *JSON, draft=0.01))
    (answer,) = document["contexts"]
    assert {(one["draft"], one["tree"]) for one in answer["predicted"]} == {
        (None, None), ("self", "none")
    }, "nothing is predicted of the others"  # fmt: skip
    ran = {(one["draft"], one["tree"], one["gamma_policy"]): one for one in answer["measured"]}
    assert set(ran) == {
        (None, None, None), ("self", "none", "fixed"), ("lookup+self", "none", "fixed"),
        ("self", "specexec", "fixed"), ("self", "none", "adaptive"), ("self", "none", "auto"),
    }  # fmt: skip
    cascade, tree = ran["lookup+self", "none", "fixed"], ran["self", "specexec", "fixed"]
    for one in (cascade, tree):
        assert one["selector"] == one["builds_on"]["selector"] == "snapkv" and one["gamma"] == 2
        assert one["builds_on"]["draft"] == "self" and one["builds_on"]["tree"] == "none"
    assert tree["tree_nodes"] == 6
    assert ran["self", "none", "auto"]["gamma"] == 8
    assert ran["self", "none", "fixed"]["builds_on"] is None and answer["not_tried"] == []

    profile = read_profile(tmp_path / "cells.jsonl")
    assert not profile.warnings and len(profile.finished) == 5
    assert profile.header.grid.tree == ("none", "specexec")
    by_policy = {cell.key.gamma_policy: cell for cell in profile.finished}
    assert set(by_policy) == {"fixed", "adaptive", "auto"}
    for cell in profile.finished:
        assert cell.lossless.ok and cell.speedup is not None
        predicted = cell.key.fixed and cell.key.tree == "none" and cell.key.kind == "self"
        assert (cell.predicted is not None) == predicted
    assert by_policy["adaptive"].num_draft_tokens > 0
    assert run_command_line(["profile", "show", "cells.jsonl"]) == 0
    assert " 40 adaptive" in capsys.readouterr().out
    export = ["profile", "export", "cells.jsonl", "--to", "vllm", "--draft-model", "D"]
    assert run_command_line([*export, "--gamma", "2", "--draft", "self", "--tree", "none"]) == 0
    assert "left out for a gamma that changes: 2 of the cells" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "wins", "flags"),
    [
        (
            (*TREE, "--gamma", "1,2"), lambda config: config.tree == "specexec",
            "--tree specexec --tree-nodes 6",
        ),
        (
            ("--gamma", "1,2,adaptive"), lambda config: config.gamma_policy.name == "adaptive",
            "--gamma adaptive",
        ),
        (
            ("--draft", "self,layers:1+self", "--gamma", "2"),
            lambda config: config.who.cascades,
            "--draft layers:1+self",
        ),
    ],
    ids=["tree", "policy", "cascade"],
)  # fmt: skip
def test_one_that_wins_is_recommended_and_its_command_runs_it(
    tune: Tune, slowed: Callable[..., None], capsys: pytest.CaptureFixture[str],
    asked: tuple[str, ...], wins: Callable[[DecodeConfig], bool], flags: str,
) -> None:  # fmt: skip
    slowed(lambda batch, config: not (config.gamma and wins(config)), 1e3)
    (answer,) = json.loads(tune(*PLACE, "--selector", "streaming", *asked, *JSON))["contexts"]
    best = answer["recommended"]
    assert best["speculate"] and best["proven"] and best["within_max_tpot"]
    assert flags in best["command"] and "--budget 40" in best["command"]
    assert best["reasons"][0].startswith("Measured, not predicted: a step takes")
    assert best["reasons"][1].startswith("What it builds on, streaming 40, int8 draft, γ ")
    words = shlex.split(best["command"])
    assert run_command_line([*words[1:], "--json", "--compare", "-q"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["config"]["gamma"] == best["gamma"] and record["lossless"]["identical"]
    assert record["gamma"]["policy"] == best["gamma_policy"]
    assert record["config"]["tree"] == best["tree"] and record["config"]["draft"] == best["draft"]
    policy = record["gamma"]
    if policy["policy"] == "adaptive":
        assert "calibration" in policy["source"], "as in the tuning: prices of the calibration"


def test_they_are_rows_like_others_without_a_prediction(
    tune: Tune, slowed: Callable[..., None]
) -> None:
    slowed(lambda batch, config: config.tree == "none", 1e3)
    asked = (*PLACE, "--selector", "streaming", "--gamma", "2,adaptive", *TREE)
    page = tune(*asked, "--format", "md")
    assert "**B 2, context 120. Use streaming 40 specexec 6, int8 draft, γ 2: " in page
    table = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("|")]
    head, _, *cells = table
    rows = [dict(zip(head, row, strict=True)) for row in cells]
    unpredicted = {row["drafter"]: row["γ"] for row in rows if row["predicted"] == "-"}
    assert unpredicted == {"streaming 40 specexec 6 int8": "2", "streaming 40 int8": "adaptive"}
    for row in rows:
        assert (row["Ω"] == "-") == (row["predicted"] == "-" or row["drafter"] == "plain decoding")
        assert row["memory"] != "-"
    assert "cascades, trees and γ that changes are measured, not predicted" in page
    assert "--to vllm --draft-model MODEL --tree none" in page
    page = tune(*asked)
    assert "cascades, trees and γ that changes are measured, not predicted" in page


def test_one_that_does_not_fit_in_memory_is_named(tune: Tune) -> None:
    asked = (*PLACE, "--selector", "streaming", "--gamma", "1", "--draft-weights", "same")
    unproven = (*(flag for flag in asked[: asked.index("--verify")]), *asked[len(PLACE) :])
    (answer,) = json.loads(tune(*unproven, "--verify", "0", *JSON))["contexts"]
    needed = max(one["memory_bytes"] for one in answer["predicted"]) + 1
    asked += ("--tree", "specexec", "--tree-nodes", "128", "--max-memory", str(needed / 1e9))
    document = json.loads(tune(*asked, *JSON))
    (answer,) = document["contexts"]
    assert {one["tree"] for one in answer["measured"]} == {None, "none"}
    (said,) = answer["not_tried"]
    assert said.startswith("streaming 40 specexec 128, γ 1, because it needs")
    assert any(said in note and "not tried at B 2" in note for note in document["notes"])


def test_what_there_is_no_time_for_is_named(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from magicdec.profiles.recorded.passes import Pass, Passes
    from magicdec.profiles.tuning.verifying import Allowance

    clock = [0.0]
    run = Passes.run

    def timed(self: Passes, config: Any, listen: Any) -> Pass:
        clock[0] += 3.0
        return run(self, config, listen)

    monkeypatch.setattr(Passes, "run", timed)
    monkeypatch.setattr(
        "magicdec.profiles.tuning.tuner.Allowance",
        lambda seconds: Allowance(seconds, now=lambda: clock[0]),
    )
    asked = (*PLACE, "--selector", "streaming", "--gamma", "1,adaptive,auto")
    (answer,) = json.loads(tune(*asked, "--time-limit", "6", *JSON))["contexts"]
    assert len(answer["measured"]) == 2
    assert answer["left_out"] == [
        f"streaming 40, int8 draft, γ {name} up to 8" for name in ("adaptive", "auto")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tree", "specexec", "--selector", "quest"), "--tree specexec --tree-nodes 16 is draft"),
        (("--tree", "specexec", "--draft", "lookup"), "add self to --draft"),
        (("--draft", "lookup+self", "--selector", "quest,topk"), "add snapkv or another one"),
        (("--draft", "self+self"), "give lookup+self"),
        (("--draft", "lookup", "--gamma", "2,adaptive"), "lookup has none; add self to --draft"),
        (("--gamma", "adaptive", "--verify", "0"), "--verify 0 makes no real runs"),
        (("--gamma", "missing.toml"), "missing.toml"),
        (("--gamma", "1-3,often"), "'often' is not a whole number"),
        (("--gamma", "auto,"), "has an empty item"),
        (("--tree", "medusa"), "--tree must be one of"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line_before_the_model_is_opened(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr("magicdec.cli.session_api.open_engine", lambda *given: pytest.fail("open"))
    said = tune(*arguments, code=2, error=True)
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize("draft", ["self,layers:9", "self,layers:9+self"])
def test_more_layers_than_there_are_is_refused_before_it_calibrates(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, draft: str
) -> None:
    monkeypatch.setattr(
        "magicdec.cli.tune.session._calibration", lambda *given: pytest.fail("calibrated")
    )
    said = tune(*PLACE, "--draft", draft, code=2, error=True)
    assert "draft layers:9 needs a model of more layers" in said


def test_the_command_undoes_a_tree_of_the_users_settings() -> None:
    """Which the run would read as well, and refuse beside --gamma 0."""
    words = shlex.split(command_line(["d.txt"], Settings(tree="sequoia"), Place(1, 100), PLAIN))
    assert words[words.index("--tree") + 1] == "none"
    assert "--tree" not in command_line(["d.txt"], Settings(), Place(1, 100), PLAIN)
