"""Measured tables: what is wrong with a file, what the errors are, and constants fitted to it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from magicdec.cli.output.console import TERMINAL
from magicdec.cli.predict.against import against
from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs import catalog
from magicdec.profiles.costs.catalog import find_hardware, find_model
from magicdec.profiles.costs.hardware import read_hardware
from magicdec.profiles.costs.measured_table import compare, refit, summaries, with_hardware
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.costs.table_file import Given, read_table

PAPER = Path(__file__).parents[2] / "data" / "paper_tables.csv"  # MagicDec, Tables 1, 3 and 6
GOOD = {
    "table": "1", "target": "Llama-3.1-8B", "draft": "self", "selector": "streaming",
    "draft_budget": "512", "gpu": "A100", "num_gpus": "8", "context": "32000", "batch": "32",
    "gamma": "2", "draft_ms_total": "14.12", "verify_ms": "19.04", "tokens_per_step": "2.46",
    "ar_ms": "17.13", "sd_ms": "14.05", "speedup": "1.22",
}  # fmt: skip


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog.platformdirs, "user_config_dir", lambda name: str(tmp_path / name))
    TERMINAL.reset()
    yield
    TERMINAL.reset()


def text_of(rows) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@pytest.fixture
def written(tmp_path):
    def write(*rows):
        path = tmp_path / "table.csv"
        path.write_text(text_of(rows))
        return path

    return write


def predicted_rows(machine="8xA100"):
    """Experiments whose measurements are what the model says."""
    hardware, rows = find_hardware(machine), []
    for name, draft in (("Llama-3.1-8B", "self"), ("Llama-2-7B-32K", "TinyLlama-1.1B"),
                        ("Llama-3.1-70B", "Llama-3.1-8B")):  # fmt: skip
        model = find_model(name)
        drafting = Drafting(512, model=None if draft == "self" else find_model(draft))
        for batch in (8, 64, 256):
            for context in (2000, 32_000):
                costs = step_costs(model, hardware, drafting, rows=batch, context=context, gamma=3)
                step = float(costs.step(3)) * 1e3
                rows.append({
                    **GOOD, "target": name, "draft": draft, "gpu": hardware.device.name,
                    "context": context, "batch": batch, "gamma": 3, "tokens_per_step": 2.5,
                    "draft_ms_total": 3e3 * float(costs.draft),
                    "verify_ms": 1e3 * float(costs.verify),
                    "ar_ms": 1e3 * float(costs.plain), "sd_ms": step / 2.5,
                    "speedup": float(costs.speedup(3, 2.5)),
                })  # fmt: skip
    return rows


def test_the_models_own_numbers_have_no_error(written):
    found = compare(read_table(written(*predicted_rows())))
    assert len(found) == 18
    assert all(abs(c.error) < 1e-9 for c in found)
    assert all(c.times.draft * 1e3 == pytest.approx(c.measured.draft_ms) for c in found)


def test_a_fit_finds_the_constants_behind_a_table(written):
    (entry,) = refit(read_table(written(*predicted_rows())), "table.csv")
    known = find_hardware("A100").constants
    for name in ("layer_s", "compact_s", "step_s", "bandwidth_efficiency", "gemm_efficiency",
                 "link_efficiency"):  # fmt: skip
        assert getattr(entry.hardware.constants, name) == pytest.approx(
            getattr(known, name), rel=0.05
        ), name
    assert "18 rows on 8 devices" in entry.hardware.provenance


def test_the_papers_tables():
    """With the constants that are shipped."""
    rows = read_table(PAPER)
    everything, *parts = summaries(compare(rows))
    assert everything.rows == 65
    assert everything.mean <= 0.0295
    assert abs(everything.bias) <= 0.02
    assert everything.same_side >= 0.95 * everything.judged
    assert {part.name for part in parts} >= {"table 3c", "hardware 8×L40", "target Llama-3.1-8B"}
    assert all(part.mean <= 0.06 for part in parts)


def test_the_shipped_constants_are_what_a_fit_gives():
    for entry in refit(read_table(PAPER), PAPER.name):
        shipped = find_hardware(entry.hardware.device.name).constants
        assert entry.hardware.constants.layer_s == pytest.approx(shipped.layer_s, rel=0.01)
        assert entry.hardware.constants.link_efficiency == pytest.approx(
            shipped.link_efficiency, rel=0.02
        )


@pytest.mark.parametrize("left_out", ["3a", "3b", "3c", "1", "6"])
def test_a_table_left_out_of_the_fit_is_predicted_as_well(left_out):
    rows = [row for row in read_table(PAPER) if row.hardware.device.name != "L40"]
    kept = [row for row in rows if row.table != left_out]
    unseen = [row for row in rows if row.table == left_out]
    found = compare(with_hardware(unseen, refit(kept, "the others")))
    assert summaries(found)[0].mean <= 0.06
    assert all(c.same_side is not False for c in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "Llama-9-8B"}, "line 2: target: no model is called 'Llama-9-8B'"),
        ({"draft": "nobody"}, "line 2: draft: no model"),
        ({"gpu": "V100"}, "line 2: gpu: no hardware"),
        ({"gpu": ""}, "line 2: gpu: no hardware"),
        ({"num_gpus": "0"}, "line 2: num_gpus must be above 0"),
        ({"num_gpus": "1.5"}, "line 2: num_gpus must be a whole number"),
        ({"context": "32K"}, "line 2: context must be a number, got '32K'"),
        ({"context": ""}, "line 2: context must be a number"),
        ({"batch": "nan"}, "line 2: batch must be above 0"),
        ({"batch": "inf"}, "line 2: batch"),
        ({"gamma": "-2"}, "line 2: gamma"),
        ({"gamma": "2.5"}, "line 2: gamma must be a whole number"),
        ({"speedup": "0"}, "line 2: speedup must be above 0"),
        ({"ar_ms": "fast"}, "line 2: ar_ms must be a number"),
        ({"draft_budget": "-1"}, "line 2: draft_budget"),
        ({"tokens_per_step": "3.5"}, "from 1 to gamma . 1 = 3"),
        ({"tokens_per_step": "0.5"}, "tokens_per_step"),
    ],
)
def test_a_bad_cell_is_named(written, change, message):
    with pytest.raises(ConfigError, match=message) as error:
        read_table(written({**GOOD, **change}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no column target, gpu"),
        (b"target,gpu\n", "no column context"),
        (",".join(GOOD).encode() + b"\n", "no rows"),
        (b"\xff\xfe\x00\x01", "not a CSV file"),
        (",".join(GOOD).encode() + b'\n1,"Llama', "not a CSV file"),
        (",".join((*GOOD, "speedup ")).encode() + b"\n", "two columns are called 'speedup'"),
        (",".join(GOOD).encode() + b"\n" + b"1," * len(GOOD) + b"9\n", "line 2: '9' stands beyond"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_table(path)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ConfigError, match=r"there is no file|is a directory"):
            read_table(path)


def test_optional_cells(written):
    required = ("target", "gpu", "context", "batch", "gamma", "tokens_per_step", "speedup")
    (row,) = read_table(written({name: GOOD[name] for name in required}))
    assert (row.hardware.count, row.drafting, row.draft_ms) == (1, Drafting(512), None)
    (full,) = read_table(written({**GOOD, "draft_budget": "full", "draft": "Llama-3.2-1B"}))
    assert full.drafting == Drafting(None, model=find_model("Llama-3.2-1B"))
    (found,) = compare([row])
    assert found.speedup > 0


@pytest.mark.parametrize(
    ("change", "given", "budget", "assumed"),
    [
        ({}, None, 512, True),
        ({}, 64, 64, False),
        ({"selector": ""}, None, 512, True),
        ({"selector": "full"}, None, None, False),
        ({"selector": "full"}, 64, None, False),
        ({"draft_budget": "full"}, 64, None, False),
        ({"draft_budget": "128"}, 64, 128, False),
        ({"draft": "Llama-3.2-1B"}, None, None, True),
        ({"draft": "Llama-3.2-1B"}, 64, 64, False),
    ],
)
def test_a_budget_that_is_not_said(written, change, given, budget, assumed):
    path = written({**GOOD, "draft_budget": "", **change})
    (row,) = read_table(path, None if given is None else Given(given))
    assert (row.drafting.budget, row.assumed) == (budget, assumed)


def test_what_is_assumed_is_said(written, capsys):
    rows = [{**GOOD, "draft_budget": budget} for budget in ("", "", "512")]
    path = written(*rows, {**GOOD, "draft_budget": "", "draft": "Llama-3.2-1B"})
    for fit in (False, True):
        against(path, format="json", fit=fit, output=None)
        err = capsys.readouterr().err
        assert "line 2 and 1 more have no draft_budget, so of a self-draft 512 entries" in err
        assert "line 5 has no draft_budget, so of the draft model its full cache" in err
    against(path, format="json", fit=False, output=None, budget=Given(512))
    out, err = capsys.readouterr()
    found = json.loads(out)["rows"]
    assert err == "" and {row["draft_budget"] for row in found} == {512}
    assert not any(row["budget_assumed"] for row in found)
    assert found[0]["speedup_predicted"] == found[2]["speedup_predicted"]


def test_a_selector_is_priced_by_what_it_reads_and_one_that_nobody_knows_is_named(written, capsys):
    """A dynamic one costs what its class says; `reuse` searches after a verify pass."""
    names = ("topk", "Quest", "reuse", "snapkv", "", "my.module:Mine", "elsewhere", "elsewhere")
    path = written(*({**GOOD, "selector": name} for name in names))
    rows = read_table(path)
    reads = [(row.drafting.select_per_token, row.drafting.verify_per_token) for row in rows]
    assert reads[:3] == [(1 / 2, 0), (1 / 16, 0), (0, 1 / 2)]
    assert set(reads[3:]) == {(0, 0)}
    assert [row.unknown for row in rows] == [""] * 5 + ["my.module:Mine", "elsewhere", "elsewhere"]
    (topk, quest, reuse, snapkv, *_) = compare(rows)
    drafts = [float(found.times.draft) for found in (topk, quest, snapkv, reuse)]
    assert drafts[0] > drafts[1] > drafts[2] == drafts[3]
    assert reuse.speedup < snapkv.speedup
    against(path, format="json", fit=False, output=None)
    out, err = capsys.readouterr()
    assert "assumed: selector 'my.module:Mine' of line 7 is none that" in err
    assert "assumed: selector 'elsewhere' of line 8 and 1 more is none that" in err
    assert err.count("assumed") == 2
    said = [row["selector_unknown"] for row in json.loads(out)["rows"]]
    assert said == [None] * 5 + ["my.module:Mine", "elsewhere", "elsewhere"]


def test_the_fit_needs_times(written):
    without = {**GOOD, "sd_ms": ""}
    with pytest.raises(ConfigError, match="no row on A100"):
        refit(read_table(written(without)), "table.csv")


@pytest.mark.parametrize(
    ("speedup", "judged", "right"), [("1.22", 1, 1), ("1.0", 0, 0), ("0.9", 1, 0)]
)
def test_only_gains_and_losses_are_judged(written, speedup, judged, right):
    summary = summaries(compare(read_table(written({**GOOD, "speedup": speedup}))))[0]
    assert (summary.judged, summary.same_side) == (judged, right)


def test_formats_agree(capsys):
    against(PAPER, format="json", fit=False, output=None)
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "magicdec.against/1"
    against(PAPER, format="jsonl", fit=False, output=None)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["error"] for line in lines if "error" in line] == [
        row["error"] for row in document["rows"]
    ]
    assert lines[-1]["summary"] == document["summary"][-1]
    against(PAPER, format="csv", fit=False, output=None)
    out, err = capsys.readouterr()
    table = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["speedup_predicted"]) for row in table] == [
        row["speedup_predicted"] for row in document["rows"]
    ]
    assert err.startswith("all: 65 rows, speedup error mean")
    for format in ("table", "md"):
        against(PAPER, format=format, fit=False, output=None)
        out = capsys.readouterr().out
        assert f"{document['summary'][0]['mean']:.1%}" in out
        assert "Llama-2-7B-32K" in out


def test_an_unknown_format():
    with pytest.raises(ConfigError, match="choose from table"):
        against(PAPER, format="xml", fit=False, output=None)


def test_a_fit_is_written_as_hardware_that_can_be_used(tmp_path, capsys):
    path = tmp_path / "fitted.toml"
    against(PAPER, format="table", fit=True, output=path)
    out, err = capsys.readouterr()
    assert out == "" and "right side of 1" in err
    entries = read_hardware(path)
    assert [entry.hardware.device.name for entry in entries] == ["L40", "H100", "A100"]
    assert all("paper_tables.csv" in entry.hardware.provenance for entry in entries)
    against(PAPER, format="table", fit=True, output=None)
    assert capsys.readouterr().out == path.read_text(encoding="utf-8")


def test_an_unwritable_output(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        against(PAPER, format="csv", fit=False, output=tmp_path / "no" / "such.csv")


def test_hardware_from_a_file_can_be_fitted(tmp_path, written):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[hardware]]\nname = "mine"\nmemory_bytes = 8e10\nbandwidth = 2e12\nflops = 3e14\n'
    )
    rows = read_table(written(*({**row, "gpu": path} for row in predicted_rows())))
    (entry,) = refit(rows, "table.csv")
    assert entry.hardware.device.name == "mine"
    assert entry.hardware.constants.step_s > 0
