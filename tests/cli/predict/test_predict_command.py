"""`magicdec predict` from its command line: pages, files, formats and what it refuses."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.predict.page import columns as table_columns

Refused = Callable[[list[str]], str]
BASE = ("predict", "--hardware", "8xA100", "--model", "llama-3.1-8b")
SMALL_GRID = ("--batch", "1,64", "--context", "1k,32k", "--gamma", "1-3", "--alpha", ".8")
PROBE = """
import json, sys
from magicdec.cli.main import run_command_line
code = run_command_line(sys.argv[1:])
heavy = ("torch", "transformers", "scipy", "textual")
print(json.dumps([code, [name for name in heavy if name in sys.modules]]), file=sys.stderr)
"""


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = run_command_line([*BASE, *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def cells(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    document = json.loads(output(capsys, *arguments, "--format", "json"))
    found: list[dict[str, Any]] = document["cells"]
    return found


@pytest.mark.parametrize("more", [[], ["--heatmap", "--svg", "map.svg"], ["--format", "csv"]])
def test_a_prediction_imports_nothing_heavy(more: list[str]) -> None:
    probe = [sys.executable, "-c", PROBE, *BASE, *more]
    result = subprocess.run(probe, capture_output=True, text=True)
    assert json.loads(result.stderr.splitlines()[-1]) == [0, []]


def test_the_page_needs_only_hardware_and_model(capsys: pytest.CaptureFixture[str]) -> None:
    page = output(capsys)
    assert max(len(line) for line in page.splitlines()) <= 80
    assert "Llama-3.1-8B on 8×A100" in page
    assert "α 0.8 at every position is an assumption" in page
    for title in ("T_T ms", "T_D ms", "T_V ms", "Ω", "tokens/s", "speedup", "bound"):
        assert title in page
    assert "largest batch that fits 8 × 80.0 GB less 10%" in page
    assert "standard: Llama-3.2-1B drafts with its full KV cache" in page
    assert "Speculation pays in" in page and "The least is" in page
    assert "\x1b" not in page


def test_a_wide_page_has_every_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    page = output(capsys, "--target-speedup", "1.5")
    [header] = [line for line in page.splitlines() if "T_T ms" in line]
    for column in table_columns(1.5, False):
        assert column.title in header
    assert "α for 1.5×" in header and "no room for" not in page


def test_a_given_alpha_is_no_assumption(capsys: pytest.CaptureFixture[str]) -> None:
    page = output(capsys, "--alpha", ".85")
    assert "assumption" not in page and "α 0.85" in page


def test_rates_by_position_and_a_recorded_run_agree(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shares = {"acceptance_rate_per_position": [0.9, 0.72, 0.36]}
    (tmp_path / "run.json").write_text(json.dumps({"speculative_decoding": shares}))
    listed = cells(capsys, "--alpha", ".9,.8,.5", "--batch", "8")
    recorded = cells(capsys, "--alpha", "@run.json", "--batch", "8")
    assert {cell["gamma"] for cell in recorded} == {1, 2, 3}, "as far as rates are known"
    for one, two in zip(listed, recorded, strict=True):
        assert one["speedup"] == pytest.approx(two["speedup"])
    [longest] = {cell["tokens_per_step"] for cell in listed if cell["gamma"] == 3}
    assert longest == pytest.approx(1 + 0.9 + 0.72 + 0.36)


def test_json_holds_every_cell_and_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(output(capsys, *SMALL_GRID, "--format", "json"))
    assert document["schema"] == "magicdec.predict/1"
    assert document["model"]["name"] == "Llama-3.1-8B" and document["hardware"]["count"] == 8
    assert document["acceptance"] == {
        "rates": [0.8], "every_position_alike": True, "source": "--alpha",
    }  # fmt: skip
    assert len(document["cells"]) == 2 * 2 * 3
    for cell in document["cells"]:
        step = cell["gamma"] * cell["draft_step_ms"] + cell["verify_ms"] + cell["accept_ms"]
        assert cell["spec_step_ms"] == pytest.approx(step)
        assert cell["speedup"] == pytest.approx(cell["plain_step_ms"] / cell["tpot_ms"])
        assert cell["memory_bytes"] == pytest.approx(
            cell["weights_bytes"] + cell["full_kv_bytes"] + cell["draft_kv_bytes"], abs=2
        )
        assert cell["plain_bound"] in ("weights", "KV", "compute", "overhead")
    best = [c["speedup"] for c in document["cells"] if c["best_gamma"]]
    assert len(best) == 4
    modes = {found["mode"] for found in document["capacity"]}
    assert modes == {"plain", "standard", "sparse_self"}
    plain = next(found for found in document["capacity"] if found["mode"] == "plain")
    assert plain["draft_kv_row_bytes"] is None and plain["gamma"] is None


def test_what_no_acceptance_brings_is_null_not_zero(capsys: pytest.CaptureFixture[str]) -> None:
    found = cells(capsys, *SMALL_GRID, "--target-speedup", "50")
    assert {cell["required_alpha"] for cell in found} == {None}
    text = output(capsys, *SMALL_GRID, "--target-speedup", "50", "--format", "csv")
    assert {row["required_alpha"] for row in csv.DictReader(io.StringIO(text))} == {""}


def test_csv_json_lines_and_json_hold_the_same_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = cells(capsys, *SMALL_GRID)
    lines = output(capsys, *SMALL_GRID, "--format", "jsonl").splitlines()
    table = csv.DictReader(io.StringIO(output(capsys, *SMALL_GRID, "--format", "csv")))
    for cell, line, row in zip(plain, lines, table, strict=True):
        flat = json.loads(line)
        assert flat | cell == flat and flat["model"] == "Llama-3.1-8B" and flat["draft"] == "self"
        assert list(row) == list(flat)
        assert float(row["speedup"]) == cell["speedup"]
        assert row["fits"] == str(cell["fits"]).lower()


def test_markdown_is_the_best_of_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, *SMALL_GRID, "--format", "md").splitlines()
    assert lines[0].startswith("| B | context | budget | γ |") and len(lines) == 2 + 4
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_notes_go_to_stderr_when_stdout_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([*BASE, "--batch", "1", "--format", "csv"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("model,hardware") and "assumption" in captured.err


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json", "a.md", "a.txt"])
def test_a_file_gets_what_its_name_says(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert output(capsys, *SMALL_GRID, "-o", name) == ""
    format = {"txt": "table"}.get(name[2:], name[2:])
    written = (tmp_path / name).read_text(encoding="utf-8")
    assert written == output(capsys, *SMALL_GRID, "--format", format)


def test_the_heat_map_and_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = output(capsys, *SMALL_GRID, "--heatmap", "--svg", "map.svg")
    assert "speedup, best γ of 1 to 3, budget 512; batch down, context across" in page
    assert "T_T ms" not in page and "▲" in page and "▼" in page and "┃" in page
    svg = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg") and "Llama-3.1-8B on 8×A100" in svg


def test_the_heat_map_sorts_its_axes(capsys: pytest.CaptureFixture[str]) -> None:
    turned = output(capsys, "--batch", "64,1", "--context", "32k,1k", "--heatmap")
    sorted_ = output(capsys, "--batch", "1,64", "--context", "1k,32k", "--heatmap")
    assert turned.split("largest batch")[0] == sorted_.split("largest batch")[0]


def test_ascii_terminals_get_ascii() -> None:
    command = [sys.executable, "-m", "magicdec.cli", *BASE]
    for more in ([], ["--heatmap"]):
        result = subprocess.run(
            [*command, *more], capture_output=True, text=True, env={"PYTHONIOENCODING": "ascii"}
        )
        assert result.returncode == 0 and result.stdout.isascii()
        assert "?" not in result.stdout, "everything has a stand-in"


def test_a_context_beyond_the_window_is_a_note_not_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = output(capsys, "--context", "200k")
    assert "context 200,000 is beyond the 131,072 tokens Llama-3.1-8B" in " ".join(page.split())


def test_budgets_of_one_alpha_come_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    page = " ".join(output(capsys, "--budget", "128,512,full", "--batch", "8").split())
    assert "acceptance grows with the budget" in page
    assert "Budget 128:" in page and "Budget full:" in page


def test_a_draft_model_has_its_full_cache_unless_a_budget_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = cells(capsys, *SMALL_GRID, "--draft-model", "llama-3.2-1b")
    sparse = cells(capsys, *SMALL_GRID, "--draft-model", "llama-3.2-1b", "--budget", "512")
    assert {cell["budget"] for cell in full} == {"full"}
    for one, two in zip(full, sparse, strict=True):
        assert one["draft_kv_bytes"] > two["draft_kv_bytes"]
        if one["batch"] * one["context"] > 1_000_000:  # a compact cache has a price of its own
            assert one["draft_step_ms"] > 2 * two["draft_step_ms"]


def test_narrower_types_take_less(capsys: pytest.CaptureFixture[str]) -> None:
    wide = cells(capsys, *SMALL_GRID)
    narrow = cells(capsys, *SMALL_GRID, "--weight-dtype", "int8", "--kv-dtype", "fp8")
    for one, two in zip(wide, narrow, strict=True):
        assert two["weights_bytes"] * 2 == one["weights_bytes"]
        assert two["full_kv_bytes"] * 2 == one["full_kv_bytes"]
        assert two["plain_step_ms"] < one["plain_step_ms"]


@pytest.mark.parametrize(
    ("name", "said", "kept"),
    [("a.csv", "holds the rows finished so far", 3), ("a.json", "is not written", 0)],
)
def test_ctrl_c_says_what_the_file_holds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, said: str,
    kept: int,
) -> None:  # fmt: skip
    from magicdec.profiles.predict import record

    cells = record.cells

    def interrupted(grid: Any) -> Any:
        yield from itertools.islice(cells(grid), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(record, "cells", interrupted)
    assert run_command_line([*BASE, *SMALL_GRID, "-o", name]) == 130
    assert capsys.readouterr().err.endswith(f"interrupted: {name} {said}\n")
    assert (len(Path(name).read_text().splitlines()) if Path(name).exists() else 0) == kept
    assert len(list(Path().iterdir())) == (kept > 0), "and nothing else is left"


def test_without_hardware_it_says_what_to_do(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path))
    said = refused(["predict", "--model", "llama-3.1-8b"])
    assert "--hardware" in said and "8xH100" in said and "magicdec calibrate" in said


def test_the_model_is_that_of_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICDEC_MODEL", "qwen2.5-7b")
    assert run_command_line(["predict", "--hardware", "h100"]) == 0
    assert capsys.readouterr().out.startswith("Qwen2.5-7B on H100")


def test_help_defines_every_term(capsys: pytest.CaptureFixture[str]) -> None:
    from magicdec.cli.output.terms import PREDICT_TERMS, TERMS

    assert run_command_line(["predict", "--help"]) == 0
    text = capsys.readouterr().out
    for term in PREDICT_TERMS:
        assert f"\n  {term}" in text and term in TERMS


MEASURED = """\
table,target,draft,selector,draft_budget,task,gpu,num_gpus,context,batch,gamma,\
draft_ms_total,verify_ms,tokens_per_step,ar_ms,sd_ms,speedup
1,Llama-3.1-8B,self,streaming,512,PG-19,H100,4,32000,32,3,15.09,18.3,2.82,17.32,12.16,1.42
"""


def test_measured_runs_stand_beside_predictions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "runs.csv").write_text(MEASURED)
    assert run_command_line(["predict", "--against", "runs.csv", "--format", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert row["speedup"] == 1.42 and row["speedup_predicted"] == pytest.approx(1.42, rel=0.15)


def test_a_budget_that_measured_runs_do_not_say_can_be_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "runs.csv").write_text(MEASURED.replace(",512,", ",,"))
    predicted = []
    for more in ([], ["--budget", "512"], ["--budget", "full"]):
        command = ["predict", "--against", "runs.csv", "--format", "json", *more]
        assert run_command_line(command) == 0
        out, err = capsys.readouterr()
        assert ("512 entries; --budget N" in err) == (not more)
        predicted.append(json.loads(out)["rows"][0]["speedup_predicted"])
    assert predicted[0] == predicted[1] > predicted[2]
    said = refused(["predict", "--against", "runs.csv", "--budget", "64,128"])
    assert "give one number, or full" in said


def test_measured_runs_answer_for_themselves(refused: Refused) -> None:
    said = refused(["predict", "--against", "runs.csv", "--batch", "8", "--heatmap"])
    assert "leave --batch, --heatmap out" in said
    assert "add --against FILE.csv" in refused(["predict", "--fit"])
    assert "nowhere.csv" in refused(["predict", "--against", "nowhere.csv"])


def test_int8_drafts_have_their_weights_beside_the_targets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    same, int8 = cells(capsys, *SMALL_GRID), cells(capsys, *SMALL_GRID, "--draft-weights", "int8")
    for one, two in zip(same, int8, strict=True):
        assert two["draft_step_ms"] < one["draft_step_ms"]
        assert two["weights_bytes"] > 1.4 * one["weights_bytes"]


def test_a_cpu_computes_in_float32_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, size in ([], 4), (["--weight-dtype", "bfloat16"], 2):
        command = ["predict", "--hardware", "cpu", "--model", "smollm2-135m", "--format", "json"]
        assert run_command_line([*command, *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["weight_bytes"] == size


def test_thresholds_separate_gain_from_loss_at_large_batches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = json.loads(output(capsys, "--gamma", "3", "--format", "json", "--batch", "8"))
    [found] = document["thresholds"]
    assert found["budget"] == 512 and found["gamma"] == 3
    growth, even = found["growth_threshold"], found["break_even_context"]

    def at(context: float, batch: int) -> float:
        grid = ("--batch", str(batch), "--context", str(round(context)), "--gamma", "3")
        speedup: float = cells(capsys, *grid)[0]["speedup"]
        return speedup

    assert at(even * 1.05, 100_000) > 1 > at(even * 0.95, 100_000)
    assert at(growth * 1.1, 100_000) > at(growth * 1.1, 10_000)
    # The threshold takes the fixed parts of all passes for equal: below it, not just below.
    assert at(growth * 0.7, 100_000) < at(growth * 0.7, 10_000)


def test_many_budgets_share_what_does_not_depend_on_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    grid = ("--batch", "8", "--context", "8k,32k", "--budget", "64-4096*2", "--gamma", "2")
    document = json.loads(output(capsys, *grid, "--format", "json"))
    kinds = [(room["mode"], room["context"], room["budget"]) for room in document["capacity"]]
    assert len(kinds) == len(set(kinds)) == 2 * (1 + 1 + 7)
    assert [found["budget"] for found in document["thresholds"]] == [64 * 2**i for i in range(7)]
    page = output(capsys, *grid)
    assert "budget 64 to 4096" in page and page.count("Budget ") == 6


def test_a_smaller_draft_cache_leaves_more_room(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ("--context", "4k", "--batch", "1", "--budget", "256,1024,full", "--gamma", "3")
    document = json.loads(output(capsys, *grid, "--format", "json"))
    rows = {
        room["budget"]: room["largest_batch"]
        for room in document["capacity"] if room["mode"] == "sparse_self"
    }  # fmt: skip
    assert rows[256] > rows[1024] > rows["full"]
    assert {cell["budget"]: cell["largest_batch"] for cell in document["cells"]} == rows


PRICED = ("--model", "llama-3.1-8b", "--hardware", "H100")


def test_other_drafters_are_priced(capsys: pytest.CaptureFixture[str]) -> None:
    def cell(*arguments: str) -> tuple[str, dict[str, Any]]:
        where = ("--batch", "8", "--context", "32k", "--gamma", "3", "--format", "json")
        document = json.loads(output(capsys, *PRICED, *where, *arguments))
        return document["draft"]["who"], document["cells"][0]

    itself, own = cell()
    who, lookup = cell("--draft", "lookup")
    assert (itself, who) == ("the model itself", "lookup")
    assert lookup["draft_step_ms"] == 0 and lookup["draft_kv_bytes"] == 0
    assert lookup["speedup"] > own["speedup"]
    who, exit = cell("--draft", "layers:16", "--alpha", ".2")
    assert "16 layers" in who and exit["draft_step_ms"] < own["draft_step_ms"]
    assert exit["weights_bytes"] == own["weights_bytes"]
    assert cell("--draft", "llama-3.2-1b") == cell("--draft-model", "llama-3.2-1b")
    assert "draft KV/row" in output(capsys, *PRICED, "--context", "8k")
    assert "draft KV/row" not in output(capsys, *PRICED, "--context", "8k", "--draft", "lookup")
