"""Options that mean nothing beside the others are refused, as an unused --seed is."""

from __future__ import annotations

from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tune.page import command_line
from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.tuning.candidate import Candidate, Place

LOOKUP, FULL = ["--draft", "lookup"], ["--draft-kv", "full"]
RUN: list[tuple[list[str], list[str], str]] = [
    (LOOKUP, ["--budget", "9"], "with draft lookup"),
    (LOOKUP, ["--selector", "snapkv"], "with draft lookup"),
    (LOOKUP, ["--draft-weights", "same"], "with draft lookup"),
    (FULL, ["--budget", "9"], "with draft-kv full"),
    (FULL, ["--selector", "snapkv"], "with draft-kv full"),
    (["--selector", "full"], ["--budget", "9"], "with selector full"),
    ([], ["--tree-nodes", "9"], "without a tree (--tree)"),
    ([], ["--tree-rates", ".9,.5"], "without a tree (--tree)"),
    (["--tree", "specexec"], ["--tree-rates", ".9,.5"], "with tree specexec"),
    (["--gamma", "0"], ["--budget", "9"], "with gamma 0"),
    (["--gamma", "0"], ["--draft", "lookup"], "with gamma 0"),
    ([], ["--raw"], "without --prompt"),
    ([], ["--take", "tail"], "without --context"),
    (["--context", "9"], ["--rows", "windows"], "where every document is one row"),
    (["--no-prefill-cache"], ["--prefill-cache-size", "1"], "with --no-prefill-cache"),
    (["--device", "cpu"], ["--sync-phases"], "on a CPU"),
]


@pytest.fixture(autouse=True)
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magicdec.engine.session.open_session", pytest.fail)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)


def _said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command_line(arguments) == 2
    out, error = capsys.readouterr()
    assert out == "" and len(error.splitlines()) == 1
    return error


@pytest.mark.parametrize(("beside", "idle", "why"), RUN, ids=lambda part: " ".join(part))
def test_an_idle_option_of_a_run_is_refused(
    capsys: pytest.CaptureFixture[str], beside: list[str], idle: list[str], why: str
) -> None:
    said = _said(["run", "no.txt", *beside, *idle], capsys)
    assert f"{idle[0][2:]} would have no effect {why}" in said and "leave it out" in said
    assert "there is no file 'no.txt'" in _said(["run", "no.txt", *beside], capsys)


@pytest.mark.parametrize("command", ["profile record", "tune"])
def test_in_a_grid_it_is_refused_where_no_cell_has_a_use_for_it(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    base = [*command.split(), "no.txt", "--context", "60"]
    base += ["-o", "p.jsonl"] if command == "profile record" else []
    said = _said([*base, *LOOKUP, "--budget", "9", "--selector", "snapkv"], capsys)
    assert "selector, budget would have no effect with draft lookup" in said
    assert "leave them out" in said
    said = _said([*base, "--draft", "lookup,self", "--budget", "9"], capsys)
    assert "no.txt" in said and "no effect" not in said
    said = _said([*base, "--tree-nodes", "9"], capsys)
    assert "tree-nodes would have no effect without a tree" in said


def test_what_a_file_or_a_variable_sets_for_every_run_is_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "magicdec.toml").write_text("budget = 128\ntree-nodes = 9\n")
    monkeypatch.setenv("MAGICDEC_SELECTOR", "streaming")
    assert "there is no file 'no.txt'" in _said(["run", "no.txt", *LOOKUP], capsys)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["tune", "no.txt", "--context", "60", "--verify", "0", "--repeats", "3"], "makes none"),
        (["profile", "compare", "a", "b", "--by", "speedup"], "--by would have no effect without"),
        (["profile", "export", "a", "--to", "csv", "--batch", "4"], "with --to csv, which has all"),
        (["profile", "export", "a", "--to", "vllm", "--check", "-o", "b"], "with --check"),
        (["profile", "export", "a", "--to", "vllm", "--schedule-keys", "lower"], "with --to vllm"),
        (["profile", "export", "a", "--to", "magicdec", "--replay"], "with --to magicdec"),
        (["calibrate", "--show", "--check", "c.jsonl"], "with --show"),
        (["calibrate", "--json", "--check", "c.jsonl"], "with --check"),
        (["predict", "--hardware", "H100", "--draft", "lookup", "--select-reads", ".5"],
         "--select-reads would have no effect with --draft lookup"),
        (["predict", "--hardware", "H100", "--budget", "full", "--select-reads", ".5"],
         "where the draft reads its full KV cache"),
    ],
    ids=lambda part: " ".join(part),
)  # fmt: skip
def test_so_is_one_of_a_commands_own(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert why in _said(arguments, capsys)


@pytest.mark.parametrize(
    "drafter",
    [None, DraftSpec(None, draft="lookup"), DraftSpec("snapkv", (), 64), DraftSpec("full"),
     DraftSpec(None, draft="layers:3", draft_kv="full"),
     DraftSpec("streaming", (), 64, draft="a+self"),
     DraftSpec("snapkv", (), 64, tree="specexec", tree_nodes=8)],
    ids=lambda drafter: "plain" if drafter is None else drafter.label,
)  # fmt: skip
def test_the_command_that_tune_recommends_is_none_of_these(
    capsys: pytest.CaptureFixture[str], drafter: DraftSpec | None
) -> None:
    """Whatever files and variables set for the tuning."""
    settings = Settings(
        tree="sequoia", tree_rates=".9,.5", draft_kv="full", take="tail", rows="windows", raw=True,
        prefill_cache=False, prefill_cache_size=2.0, device="cpu", sync_phases=True, budget=99,
    )  # fmt: skip
    candidate = Candidate(drafter, 3 if drafter else 0)
    line = command_line(["no.txt"], settings, Place(1, 50), candidate)
    assert "there is no file 'no.txt'" in _said(line.split()[1:], capsys)
