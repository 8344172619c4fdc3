"""`magicdec calibrate` with the real engine and a tiny random model, then a run it predicts."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.errors import ConfigError
from magicdec.profiles.calibration import check, measure
from magicdec.profiles.calibration.check import Cell, append_cells, read_cells
from magicdec.profiles.calibration.store import load_calibration


@pytest.fixture
def magicdec(
    tiny: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Any:
    folder = tmp_path / "model"
    tiny().theirs.save_pretrained(folder)
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    document = tmp_path / "doc.txt"
    document.write_text(" ".join(f"w{3 + i * 7 % 120}" for i in range(700)))
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setattr(measure.Grid.__init__, "__defaults__", _small())
    monkeypatch.setattr(check, "BATCHES", (1, 3))
    monkeypatch.setattr(check, "CONTEXTS", (40, 90))
    monkeypatch.setattr(check, "BUDGETS", (16,))
    monkeypatch.setattr(check, "GAMMAS", (1, 2))
    monkeypatch.setattr(check, "ROUNDS", 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAGICDEC_MODEL", str(folder))

    def run(command: str, *arguments: str, code: int = 0, document: Path = document) -> Any:
        given = [command, str(document), *arguments, "--quiet"]
        assert run_command_line(given) == code, capsys.readouterr().err
        return capsys.readouterr()

    return run


def _small() -> tuple[Any, ...]:
    rounds = ((("snapkv", 32), ("streaming", 16)),)
    return (1, 2), (200, 60), (1, 3), rounds, 1, 2, 0.0


def test_calibrate_then_show_check_and_run(
    magicdec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = magicdec("calibrate")
    for part in ("constants of", "verify", "draft, int8 weights", "snapkv", "acceptance by"):
        assert part in said.out
    assert "stored in" in said.err
    stored = load_calibration()
    assert stored is not None and stored.model.layers == 2
    assert stored.residuals and stored.selection("snapkv") is not None

    shown = json.loads(magicdec("calibrate", "--show", "--json").out)
    assert shown["schema"] == "magicdec.calibration/1" and shown["created"] == stored.created

    checked = magicdec("calibrate", "--check", "check.jsonl")
    assert "8 cells: error of the predicted speedup median" in checked.out
    lines = (tmp_path / "check.jsonl").read_text().splitlines()
    cells = read_cells(tmp_path / "check.jsonl")
    assert {(c.rows, c.context, c.gamma) for c in cells} == {
        (rows, context, gamma) for rows in (1, 3) for context in (40, 90) for gamma in (1, 2)
    }
    for cell in cells:
        parts = cell.gamma * cell.draft_ms_predicted + cell.verify_ms_predicted
        assert cell.step_ms_predicted >= parts and 1 <= cell.tokens_per_step <= cell.gamma + 1
    again = magicdec("calibrate", "--check", "check.jsonl")
    assert "8 cells" in again.out and (tmp_path / "check.jsonl").read_text().splitlines() == lines
    _check_goes_on_after(magicdec, tmp_path / "check.jsonl", lines, monkeypatch)

    options = ["--context", "100", "--batch", "2", "--max-new-tokens", "24", "--budget", "32",
               "--compare", "--ignore-eos"]  # fmt: skip
    record = json.loads(magicdec("run", *options, "--json").out)
    predicted = record["predicted"]
    assert predicted["decode"] > 0 and predicted["explanation"].startswith("mostly ")
    error = 100 * (predicted["decode"] / record["speedup"]["decode"] - 1)
    assert predicted["error_pct"] == pytest.approx(error)
    assert "snapkv 32" in predicted["acceptance"]["source"]
    report = magicdec("run", *options).out
    assert "predicted" in report and "mostly" in report and "with the run's own" in report


def _check_goes_on_after(
    magicdec: Any, path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, and a write that was torn: contexts are measured from the longest, 4 cells each."""
    torn = "\n".join(lines)[:-20]
    path.write_text(torn)

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(check.Check, "prefill", interrupt)
        said = magicdec("calibrate", "--check", path.name, code=130)
        assert said.err.endswith("check.jsonl keeps what is finished; the same command goes on\n")
        assert path.read_text() == torn
        patch.setattr(check.Check, "prefill", lambda check: check._bench.prefill())
        patch.setattr(check, "append_cells", _full_disk)
        said = magicdec("calibrate", "--check", path.name, code=1)
        assert "No space left on device; it keeps what is finished" in said.err
        assert said.err.count("predicted ") == 4, "what was measured is shown"
    said = magicdec("calibrate", "--check", path.name)
    assert "8 cells" in said.out
    _check_is_of_one_calibration_and_text(magicdec, path)
    now = path.read_text().splitlines()
    assert now[:7] == lines[:7] and len(now) == 7 + 4, "the context of the torn cell, anew"
    assert len(read_cells(path)) == 8


def _check_is_of_one_calibration_and_text(magicdec: Any, path: Path) -> None:
    whole = path.read_text()
    other = path.with_name("other.txt")
    other.write_text(path.with_name("doc.txt").read_text().replace("w3 ", "w4 "))
    said = magicdec("calibrate", "--check", path.name, code=2, document=other)
    assert said.err == f"magicdec: {path.name} was measured on another text; give another file\n"
    path.write_text(whole.replace('"calibrated": "20', '"calibrated": "19'))
    said = magicdec("calibrate", "--check", path.name, code=2)
    assert "checks the calibration of 19" in said.err and len(said.err.splitlines()) == 1
    path.write_text(whole)


def _full_disk(path: Path, cells: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere/c.jsonl", "there is no folder 'nowhere'; create it"),
        ("doc.txt", "is what this command reads; give another file"),
        ("letter.txt", "line 1 is no cell of a check (Expecting value"),
        ("/dev/full", "is a device, and has to be read again; give another file"),
    ],
)
def test_a_check_file_is_looked_at_before_the_model(
    magicdec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    (tmp_path / "letter.txt").write_text("Dear Sir")
    monkeypatch.setenv("MAGICDEC_MODEL", "nowhere/model")
    refused = magicdec("calibrate", "--check", name, code=2).err.splitlines()[-1]
    assert said in refused
    assert (tmp_path / "letter.txt").read_text() == "Dear Sir"


def test_cells_of_a_check_are_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "check.jsonl"
    figures = [1.0] * (len(fields(Cell)) - 5)
    one, two = Cell(1, 40, 16, 2, *figures, "today"), Cell(3, 40, 16, 2, *figures, "today")
    append_cells(path, [one])
    path.write_text(path.read_text() + '{"rows": 1, "cont')
    assert read_cells(path) == [one]
    append_cells(path, [two, two])
    assert read_cells(path) == [one, two] and len(path.read_text().splitlines()) == 3
    first, _, rest = path.read_text().partition("\n")
    for damaged in (first[:-9], "[]", first.replace("40", '"40"'), first.replace("1.0", "NaN", 1)):
        path.write_text(f"{damaged}\n{rest}")
        with pytest.raises(ConfigError, match=r"check\.jsonl, line 1 is no cell .*; delete that"):
            read_cells(path)


def test_a_stale_calibration_is_named_and_not_used(
    magicdec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    magicdec("calibrate")
    said = magicdec("run", "--context", "100", "--kv-dtype", "bfloat16", "--json")
    assert json.loads(said.out)["predicted"] is None
    refused = magicdec("calibrate", "--kv-dtype", "bfloat16", "--check", "c.jsonl", code=2)
    assert refused is not None


def test_what_cannot_be_done_says_so(magicdec: Any, tmp_path: Path) -> None:
    magicdec("calibrate", "--show", code=2)
    magicdec("calibrate", "--check", "check.jsonl", code=2)
    short = tmp_path / "short.txt"
    short.write_text("w3 w4")
    magicdec("calibrate", code=2, document=short)
    assert load_calibration() is None


@pytest.mark.parametrize("early", [True, False])
def test_a_calibration_that_cannot_be_stored_is_shown_and_used(
    magicdec: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, early: bool
) -> None:
    """early: that is known before minutes are spent on it."""
    from magicdec.profiles.calibration import store

    if early:
        blocked = tmp_path / "cache" / "calibrations"
        blocked.write_text("in the way")
        monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(blocked.parent))
    else:  # the disk fills up meanwhile

        def full(path: Path) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(store, "replacing", full)
    said = magicdec("calibrate", "--json", "--attention", "sdpa", code=1)
    found = json.loads(said.out)
    assert found["schema"] == "magicdec.calibration/1" and found["selections"]
    lines = [line for line in said.err.splitlines() if "shards" not in line and line]
    assert len(lines) == 1 + early and "not stored: " in lines[-1] and "is above" in lines[-1]
    assert ("warning: " in lines[0] and "File exists" in lines[0]) == early

    tuned = magicdec(
        "tune", "--context", "60", "--batch", "1", "--budget", "16", "--gamma", "1", "--verify",
        "0", "--max-new-tokens", "8", "--attention", "sdpa", "--format", "json",
    )  # fmt: skip
    assert json.loads(tuned.out)["calibration"] is not None
    assert "the calibration is used here and not stored: " in tuned.err
    assert load_calibration() is None


@pytest.mark.parametrize("options", [(), ("--check", "check.jsonl")])
def test_a_missing_document_is_named_before_the_model_opens(
    magicdec: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr("magicdec.engine.session.open_session", pytest.fail)
    magicdec("calibrate", *options, code=2, document=tmp_path / "none.txt")


def test_the_grid_shrinks_to_a_models_window() -> None:
    whole = measure.Grid((1, 2), (6000, 600), (1,), rounds=())
    assert whole.within(8192) is whole
    small = whole.within(1000)
    assert small.contexts[0] < 1000 and small.contexts[0] / small.contexts[1] == pytest.approx(
        10, rel=0.05
    )
    with pytest.raises(ValueError, match="too short to calibrate"):
        whole.within(128)
