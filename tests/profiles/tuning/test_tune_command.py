"""`magicdec tune` with the real engine and a tiny random model, on a calibration made by hand."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.output import progress
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tune.page import command_line
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Cell
from magicdec.profiles.recorded.writer import ProfileWriter
from magicdec.profiles.tuning.candidate import PLAIN, Place

Tune = Callable[..., str]


FEW = ("--selector", "snapkv", "--budget", "40", "--gamma", "1,2")


def test_predictions_alone_make_a_command_that_runs(
    tune: Tune, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--verify", "0", "--batch", "2", "--context", "120", "--selector", "full")
    found = json.loads(tune(*asked, "--draft-weights", "int8", "--format", "json", "-q"))
    (answer,) = found["contexts"]
    best = answer["recommended"]
    assert (best["speculate"], best["proven"]) == (True, False)
    assert best["gamma"] > 1 and best["speedup"] > 1  # int8 drafts almost always agree, for a tenth
    assert best["draft_weights"] == "int8" and answer["surveyed_rows"] == 4
    top = answer["predicted"][0]
    assert len(top["acceptance_rate_per_position"]) == top["gamma"]
    assert 1 <= top["mean_acceptance_length"] <= top["gamma"] + 1
    words = shlex.split(best["command"])
    assert words[:3] == ["magicdec", "run", "doc.txt"]
    assert words[3:7] == ["--batch", "2", "--context", "120"]
    assert run_command_line([*words[1:], "--json", "--compare", "-q"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["config"]["gamma"] == best["gamma"]
    assert record["config"]["max_new_tokens"] == 16
    # The survey's forecast of the tokens per step is what a run has.
    length = record["speculative_decoding"]["mean_acceptance_length"]
    assert length == pytest.approx(top["mean_acceptance_length"], rel=0.25)


def test_real_runs_overrule_a_calibration_that_promises_too_much(
    tune: Tune, tmp_path: Path
) -> None:
    """A random model over 40 of 120 entries is seldom right, and a tiny one drafts no quicker."""
    page = tune(*FEW, "--batch", "2", "--context", "120", "-o", "cells.jsonl", draft=0.0001)
    assert "Don't speculate (measured)" in page
    assert "magicdec run doc.txt --batch 2 --context 120 --gamma 0" in page
    # What it says of the reason depends on how steady the machine was: see the tests of reasons.
    assert all(len(line) <= 80 or "magicdec run" in line for line in page.splitlines())
    profile = read_profile(tmp_path / "cells.jsonl")
    assert {cell.key.gamma for cell in profile.finished} == {1, 2}
    for cell in profile.finished:
        assert cell.key.batch == 2 and cell.key.context == 120
        assert 2 <= len(cell.repeats) <= 4 and cell.lossless.ok and cell.speedup is not None
        assert cell.predicted is not None and cell.predicted.speedup is not None
        plain = cell.repeats[0].plain
        assert plain is not None and plain.tokens == 4 * 15  # four rows, two at a time
    assert profile.header.max_new_tokens == 16


def test_real_runs_beside_other_programs_are_told_of(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the answer's notes, and with every repeat in the file."""
    from magicdec.profiles.machine.other_programs import OthersLoad

    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 0.1)
    monkeypatch.setattr(OthersLoad, "share", property(lambda self: 0.48))
    asked = ("--batch", "2", "--context", "120", "-o", "cells.jsonl", "--format", "json", "-q")
    record = json.loads(tune(*FEW, *asked, draft=0.0001))
    (note,) = [line for line in record["notes"] if "disturbed" in line]
    assert "other programs took 48% of the CPUs" in note
    for cell in read_profile(tmp_path / "cells.jsonl").finished:
        assert cell.disturbed and len(cell.watched) == len(cell.repeats)
        assert cell.others == 0.48


def test_where_drafting_is_dear_it_says_so_before_any_run(tune: Tune) -> None:
    page = tune(*FEW, "--batch", "2", "--context", "120", "--verify", "0", draft=1.0)
    assert "Don't speculate, only predicted" in page
    assert "measured" in page and "profile export" not in page


def test_a_grid_has_an_answer_for_every_context_and_a_map(tune: Tune) -> None:
    grid = ("--batch", "1,3", "--context", "60-120*2", "--verify", "0")
    page = tune(*FEW, *grid)
    assert "B 3, context 60: most tokens/s" in page and "B 3, context 120:" in page
    assert "batch down, context across" in page and "break-even" in page
    found = json.loads(tune(*FEW, *grid, "--format", "json"))
    assert [answer["context"] for answer in found["contexts"]] == [60, 120]
    for answer in found["contexts"]:
        places = {(o["batch"], o["draft_weights"], o["gamma"]) for o in answer["predicted"]}
        kinds = {(b, w, g) for b in (1, 3) for w in ("int8", "same") for g in (1, 2)}
        assert places == kinds | {(1, None, 0), (3, None, 0)}


def test_least_tpot_takes_the_small_batch(tune: Tune) -> None:
    asked = (*FEW, "--batch", "1,3", "--context", "60", "--verify", "0", "--format", "json")
    # Whatever the batch, a step takes the same: TPOT does not fall with it, tokens/s rise.
    assert json.loads(tune(*asked))["contexts"][0]["recommended"]["batch"] == 3
    found = json.loads(tune(*asked, "--objective", "tpot"))
    assert found["contexts"][0]["recommended"]["batch"] == 1


def test_an_impossible_limit_fails_and_names_the_closest(
    tune: Tune, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*FEW, "--batch", "2", "--context", "60", "--verify", "0", "--max-tpot", "0.001")
    page = tune(*asked, code=1)
    assert "The TPOT limit is out of reach" in page
    assert "No setting tried keeps a TPOT of 0.001 ms: the closest" in page
    assert json.loads(tune(*asked, "--format", "json", code=1))["contexts"][0]["recommended"][
        "within_max_tpot"
    ] is False  # fmt: skip


def test_a_memory_limit_keeps_out_what_is_larger(tune: Tune) -> None:
    asked = (*FEW, "--batch", "2", "--context", "120", "--verify", "0", "--format", "json")
    every = json.loads(tune(*asked))["contexts"][0]["predicted"]
    sizes = sorted(option["memory_bytes"] for option in every)
    limit = (sizes[0] + sizes[-1]) / 2
    found = json.loads(tune(*asked, "--max-memory", str(limit / 1e9)))["contexts"][0]
    assert {o["memory_bytes"] <= limit for o in found["predicted"] if o["fits"]} == {True}
    assert any(not o["fits"] for o in found["predicted"])
    page = tune(*asked[:-2], "--max-memory", str(limit / 1e9))
    assert "do not fit in memory" in page
    page = tune(*asked[:-2], "--max-memory", "0.000001", code=1)
    assert "context 120: nothing fits in memory" in page


def test_the_answer_comes_first_and_a_file_that_cannot_be_written_leaves_nothing(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append, page = ProfileWriter.append, ""

    def full(self: ProfileWriter, cell: Cell) -> None:
        nonlocal page
        page = capsys.readouterr().out
        append(self, cell)
        raise OSError(28, "No space left on device")

    names = sorted(path.name for path in tmp_path.iterdir())
    asked = (*FEW, "--batch", "1", "--context", "60", "--repeats", "1", "-o", "cells.jsonl", "-q")
    with monkeypatch.context() as patch:
        patch.setattr(ProfileWriter, "append", full)
        said = tune(*asked, code=1, error=True)
    assert "plain decoding" in page and said == (
        "magicdec: --output cells.jsonl cannot be written: No space left on device; the answer "
        "above is all there is\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with monkeypatch.context() as patch:
        patch.setattr("magicdec.cli.tune.output.print_page", _no_reader)
        tune(*asked, code=1)
    assert read_profile(tmp_path / "cells.jsonl").finished, "written all the same"


def _no_reader(*given: object) -> None:
    raise RuntimeError("nobody reads the page")


class _Stops(progress.Silent):
    """Ctrl-C when a certain thing begins."""

    def __init__(self, at: str) -> None:
        self._at = at

    def loading(self, what: str, share: float | None) -> None:
        if what.startswith(self._at):
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("round 2", "Don't speculate (measured)"),
        ("round 1", "only predicted"),
        ("context 120: what streaming", "only predicted"),
    ],
)
def test_an_interrupt_keeps_what_is_known(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, at: str, shown: str
) -> None:
    monkeypatch.setattr(progress, "choose_display", lambda quiet: _Stops(at))
    asked = ("--selector", "snapkv,streaming", "--budget", "40", "--gamma", "1")
    page = tune(*asked, "--batch", "2", "--context", "120", code=130)
    assert shown in page and "snapkv 40" in page
    assert ("streaming 40" in page) == at.startswith("round")


def test_an_early_interrupt_says_that_nothing_is_known(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "choose_display", lambda quiet: _Stops("context 120"))
    said = tune(*FEW, "--batch", "2", "--context", "120", code=130, error=True)
    assert said.strip().endswith("interrupted: nothing is known yet")


def test_markdown_has_the_command_and_the_table(tune: Tune) -> None:
    asked = (*FEW, "--batch", "1", "--context", "60", "--verify", "0", "--format", "md")
    text = tune(*asked)
    assert "```console\nmagicdec run doc.txt --batch 1 --context 60" in text
    assert "| drafter |" in text and "| plain decoding |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gamma", "0"), "--gamma 0 drafts nothing"),
        (("--batch", "0"), "--batch: 0 is outside"),
        (("--batch", "5000"), "4,096 is the most"),
        (("--context", "9-3"), "runs backwards"),
        (("--selector", "nope"), "nope"),
        (("--draft-weights", "int4"), "int4"),
        (("--max-tpot", "-3"), "--max-tpot must be above 0"),
        (("--max-memory", "nan"), "--max-memory must be above 0"),
        (("--max-tpot", "inf"), "--max-tpot must be above 0 and below 1e9, got inf"),
        (("--verify", "-1"), "greater than or equal to 0, got '-1'"),
        (("--verify", "1.5"), "got '1.5'"),
        (("--repeats", "0"), "got '0'"),
        (("--gamma", "adaptive,foo"), "0..32, auto, adaptive or a .toml file"),
        (("--max-new-tokens", "1"), "max-new-tokens must be 2 or more here, got 1"),
        (("--model", ""), "--model must be a text that is not empty"),
        (("--verify", "0", "-o", "x.jsonl"), "--verify 0 makes none"),
        (("-o", "nowhere/x.jsonl"), "there is no folder"),
        (("-o", "doc.txt"), "is what this command reads"),
        (("-o", "/dev/null"), "exists; give another file"),
        (("-o", "/proc/x.jsonl"), "/proc/x.jsonl cannot be written: "),
        (("--budget", "3", "--selector", "streaming"), "leaves no room"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_the_model_is_opened(
    tune: Tune, arguments: tuple[str, ...], message: str
) -> None:
    said = tune(*arguments, code=2, error=True)
    assert message in said and said.count("\n") == 1


@pytest.mark.parametrize("format", ["table", "md", "json"])
def test_a_files_name_cannot_drive_the_terminal_and_its_command_can_be_pasted(
    tune: Tune, tmp_path: Path, format: str
) -> None:
    name = "a\033]0;pwned\007 it's.txt"
    (tmp_path / name).write_text("Nobody knows what the quick brown fox jumps over today. " * 5)
    asked = ("--verify", "0", "--batch", "2", "--context", "120", *FEW, "-q", "--format", format)
    page = tune(name, *asked)
    assert all(line.isprintable() for line in page.splitlines())
    if format == "json":
        command = json.loads(page)["contexts"][0]["recommended"]["command"]
    else:
        (command,) = (line for line in page.splitlines() if line.startswith("magicdec run"))
    pasted = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True
    )
    assert pasted.stdout.split("\0")[:4] == ["magicdec", "run", "doc.txt", name]


def test_a_file_named_like_an_option_stays_a_file() -> None:
    line = command_line(["-x.txt", "-"], Settings(), Place(2, 100), PLAIN)
    assert line.startswith("magicdec run ./-x.txt - --batch 2")


def test_a_document_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["tune"]) == 2
    assert "no document given" in capsys.readouterr().err


def test_the_app_puts_the_same_questions_and_gets_its_answer_as_settings(
    model: Path, calibrated: Callable[[float], None], tmp_path: Path
) -> None:
    from magicdec.cli.tui.process.messages import Open, Report, Tune, TuneEnded, TuneStep
    from magicdec.cli.tui.process.wire import decode, encode
    from magicdec.cli.tui.process.worker import Worker
    from magicdec.cli.tui.session_log import tuned_profile

    calibrated(0.1)
    (tmp_path / "doc.txt").write_text("All the world is a stage, and all the men merely play. " * 5)
    settings = Settings(
        model=str(model), attention="sdpa", context=200, max_new_tokens=16, ignore_eos=True
    )
    reports: list[Report] = []
    worker = Worker(reports.append)
    worker.handle(Open((str(tmp_path / "doc.txt"),), settings))
    worker.handle(Tune(-1, settings, ("snapkv",)))
    end = decode(encode(reports[-1]))
    assert isinstance(end, TuneEnded) and end.status == "finished", end
    assert any(isinstance(report, TuneStep) for report in reports)
    assert end.headline and end.reasons and end.answer is not None
    same = {"context": 200, "batch": 1, "model": str(model), "max_new_tokens": 16}
    assert {name: getattr(end.answer, name) for name in same} == same
    assert {seen.settings.selector for seen in end.learned} == {"snapkv"}
    profile = tuned_profile(end)
    assert profile is not None and profile.cells
    chosen = {(cell.key.selector, cell.key.budget, cell.key.gamma) for cell in profile.cells}
    answer = (end.answer.selector, end.answer.budget, end.answer.gamma)
    assert end.answer.gamma == 0 or answer in chosen


def test_every_drafter_competes(tune: Tune, model: Path, tmp_path: Path) -> None:
    drafts = ("--draft", f"self,lookup,layers:1,{model}", "--selector", "streaming")
    asked = (*drafts, "--budget", "24", "--batch", "2", "--context", "100", "--gamma", "2")
    asked += ("--draft-weights", "same")
    asked += ("--format", "json")
    found = json.loads(tune(*asked, "--repeats", "1", "--verify", "4", "-o", "cells.jsonl"))
    assert len(read_profile(tmp_path / "cells.jsonl").finished) == 4
    (answer,) = found["contexts"]
    predicted = {one["draft"]: one for one in answer["predicted"]}
    assert set(predicted) == {None, "self", "lookup", "layers:1", str(model)}
    lookup, exit, other = predicted["lookup"], predicted["layers:1"], predicted[str(model)]
    assert lookup["budget"] is None and lookup["step_ms"]["draft"] < 1
    assert exit["budget"] == other["budget"] == 24
    # The calibrated machine's passes all take the same: only whether one runs counts.
    itself = predicted["self"]["step_ms"]["draft"]
    assert exit["step_ms"]["draft"] == pytest.approx(itself, rel=1e-3)
    assert other["memory_bytes"] > predicted["self"]["memory_bytes"], "its weights and cache"
    assert other["mean_acceptance_length"] > 1, "it is the target itself, over a bounded cache"
    assert {one["draft"] for one in answer["measured"]} == set(predicted), "all of them ran"

    little = predicted["self"]["memory_bytes"] + 1000
    tight = json.loads(tune(*asked, "--verify", "0", "--max-memory", str(little / 1e9)))
    fits = {one["draft"]: one["fits"] for one in tight["contexts"][0]["predicted"]}
    assert fits["self"] and not fits[str(model)]


def test_the_command_it_recommends_names_the_drafter(tune: Tune, model: Path) -> None:
    text = tune("--draft", "lookup", "--batch", "1", "--context", "100", "--gamma", "2",
                "--verify", "0", "--format", "json")  # fmt: skip
    recommended = json.loads(text)["contexts"][0]["recommended"]
    if recommended["speculate"]:
        assert "--draft lookup --gamma 2" in recommended["command"]
        assert "--budget" not in recommended["command"]
    else:
        assert "--gamma 0" in recommended["command"]
