"""Who drafts is part of a cell: files, tables, exports know it; older files are read."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.errors import ConfigError
from magicdec.engine.events import PhaseTimes
from magicdec.profiles.recorded.encode import cell_to_json
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Cell, Repeat, Sample
from magicdec.profiles.recorded.writer import ProfileWriter
from magicdec.profiles.tuning.candidate import Candidate
from magicdec.profiles.tuning.preparing import config_of

WAYS = {
    "lookup": {"draft": "lookup"},
    "full": {"draft_kv": "full"},
    "layers:2 snapkv 256": {"draft": "layers:2"},
    "draftling full KV": {"draft": "org/draftling", "draft_kv": "full"},
    "draftling snapkv 64": {"draft": "org/draftling", "budget": 64},
    "snapkv 256 adaptive": {"gamma_policy": "adaptive"},
}


def drawn(cell: Cell, **drafter: object) -> Cell:
    return replace(cell, key=replace(cell.key, **drafter))


@pytest.fixture
def cells(make) -> list[Cell]:
    return [make.cell(), *(drawn(make.cell(), **way) for way in WAYS.values())]


def test_members_that_a_way_has_no_use_for_do_not_tell_ways_apart(make):
    key = make.cell().key
    lookup = replace(key, draft="lookup")
    assert lookup.way == "lookup" and lookup.budget is lookup.selector is lookup.draft_kv is None
    assert lookup == replace(key, draft="lookup", selector="streaming", budget=9)
    assert lookup.draft_weights == "same" and lookup != key
    whole = replace(key, draft_kv="full")
    assert whole == replace(key, selector="full", budget=3) and whole.budget is None
    assert DraftSpec("snapkv", (), 9).way == "snapkv 9"


def test_they_survive_the_file(make, cells, tmp_path):
    profile = read_profile(make.write(tmp_path / "p.jsonl", *cells))
    assert profile.cells == tuple(cells) and not profile.warnings
    assert [cell.key.way for cell in profile.cells[1:]] == list(WAYS)
    assert sorted(cell.key for cell in cells)[0] == cells[0].key, "itself over a selection first"
    assert "lookup" in cells[1].key.label and "256" not in cells[1].key.label


def test_folders_stay_private(make):
    for under in ("", "+self"):
        for folder in ("/home/me/drafts/tiny", "~/tiny/"):
            cell = drawn(make.cell(), draft=f"{folder}{under}")
            assert cell_to_json(cell)["key"]["draft"] == f"tiny{under}"
            assert cell.key.way == f"tiny{under} snapkv 256"
    written = cell_to_json(drawn(make.cell(), gamma_policy="/home/me/plan.toml"))
    assert written["key"]["gamma_policy"] == "plan.toml"


def older(lines: list[str]) -> str:
    """As version 1 wrote them: no cell says who drafts."""
    header, *cells = map(json.loads, lines)
    for name in ("draft", "draft_kv"):
        header["grid"].pop(name)
        for cell in cells:
            del cell["key"][name]
    return "".join(
        json.dumps(line, separators=(",", ":")) + "\n"
        for line in ({**header, "schema": "magicdec.profile/1"}, *cells)
    )


def test_an_older_file_is_read_and_continued(make, tmp_path):
    path, cell = tmp_path / "old.jsonl", make.cell()
    full = cell_to_json(make.cell(4))
    full["key"] |= {"selector": "full"}  # with a budget, as it was written then
    path.write_text(older([*make.lines(cell), json.dumps(full)]))
    before = path.read_bytes()
    profile = read_profile(path)
    assert profile.cells[0] == cell
    assert profile.cells[1].key == replace(make.cell(4).key, draft_kv="full")

    lookup = drawn(cell, draft="lookup")
    with ProfileWriter(path, make.header) as file:
        assert file.finished == {found.key for found in profile.cells}
        file.append(lookup)
    now = path.read_bytes()
    assert now.startswith(before.replace(b"magicdec.profile/1", b"magicdec.profile/2"))
    assert read_profile(path).cells == (*profile.cells, lookup)


@pytest.mark.parametrize(
    "change", [{"budget": None}, {"selector": None}, {"draft": 3}, {"draft_kv": "some"}]
)
def test_a_key_that_lacks_what_its_way_needs_is_refused(make, tmp_path, change):
    data = cell_to_json(make.cell())
    data["key"] |= change
    path = tmp_path / "p.jsonl"
    path.write_text(make.lines()[0] + "\n" + json.dumps(data) + "\n\n" + make.lines()[0])
    with pytest.raises(ConfigError) as caught:
        read_profile(path)
    assert next(iter(change)) in str(caught.value)


def test_a_way_becomes_the_settings_that_draft_so(make, cells):
    base = DecodeConfig(max_new_tokens=7, draft="lookup")
    for cell, change in zip(cells[1:], WAYS.values(), strict=True):
        config = config_of(Candidate(cell.key.drafter, 5), base)
        assert config.gamma == 5 and config.max_new_tokens == 7
        assert config.draft == change.get("draft", "self")
        assert config.draft_kv == change.get("draft_kv", "selected")
        assert config.gamma_policy.name == change.get("gamma_policy", "fixed")
    assert config_of(Candidate(cells[0].key.drafter, 2), base).draft == "self"


def test_tables_name_them(make, cells, tmp_path, magicdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    path = make.write(tmp_path / "p.jsonl", *cells)
    code, out, err = magicdec("profile", "show", path)
    assert code == 0, err
    for name in WAYS:
        assert name in out
    assert "lookup 256" not in out and "None" not in out
    code, out, _ = magicdec("profile", "show", path, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["draft"] for row in rows] == [cell.key.draft for cell in cells]
    assert rows[1]["budget"] == rows[1]["selector"] == "" and rows[3]["budget"] == "256"
    code, out, _ = magicdec("profile", "compare", path, path)
    assert code == 0 and all(name in out for name in ("lookup", "layers:2 snapkv 256"))


def test_an_export_leaves_out_a_gamma_that_changes(make, tmp_path, magicdec):
    changing = drawn(make.cell(verify=0.01), gamma_policy="adaptive")
    path = make.write(tmp_path / "p.jsonl", make.cell(), changing)
    code, _, err = exported(magicdec, path, "vllm", "--draft-model", "D")
    assert code == 0 and "left out for a gamma that changes: 1 of the cells" in err
    alone = make.write(tmp_path / "q.jsonl", changing)
    code, _, err = exported(magicdec, alone, "vllm", "--draft-model", "D")
    assert code == 2 and "no engine can be told" in err and err.count("\n") == 1
    assert "γ adaptive up to" in changing.key.label and "adaptive" not in make.cell().key.label


def stepped(cell: Cell, row_steps: int) -> Cell:
    """As of passes of so many row-steps, those without a draft included."""
    return replace(cell, repeats=tuple(
        replace(repeat, speculative=replace(repeat.speculative, row_steps=row_steps))
        for repeat in cell.repeats
    ))  # fmt: skip


def test_tables_have_the_mean_gamma_where_it_is_known(make, tmp_path, magicdec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    mixed = stepped(drawn(make.cell(), gamma_policy="adaptive"), 200)  # 100 of them draft 3
    silent = drawn(make.cell(), gamma_policy="auto")
    assert mixed.mean_gamma == 1.5 and silent.mean_gamma is None
    long = drawn(stepped(make.cell(), 100), draft="layers:10", gamma_policy="adaptive")
    path = make.write(tmp_path / "p.jsonl", stepped(make.cell(), 100), mixed, silent, long)
    assert read_profile(path).cells[1].mean_gamma == 1.5
    code, out, err = magicdec("profile", "show", path)
    assert code == 0, err
    rows = [" ".join(line.split()) for line in out.splitlines()]
    for cell in ("snapkv 256 3 ", "snapkv 256 adaptive 1.5 of 3 ", "snapkv 256 auto up to 3 ",
                 "layers:10 s..56 adaptive 3.0 of 3 "):  # fmt: skip
        assert any(row.startswith(f"1 1,000 {cell}") for row in rows)
    _, out, _ = magicdec("profile", "show", path, "--format", "csv")
    means = [row["mean_gamma"] for row in csv.DictReader(io.StringIO(out))]
    assert means == ["3.0", "1.5", "", "3.0"]
    code, out, _ = magicdec("profile", "compare", path, path)
    assert code == 0 and out.count("up to 3") == 3


def test_later_positions_of_a_gamma_that_changes_may_rise(make, tmp_path, magicdec):
    """Pooled as if they could not, position 1 would seem to be accepted more often than it was."""
    cell = replace(drawn(make.cell(gamma=2), gamma_policy="adaptive"),
                   drafted_per_position=(100, 20), accepted_per_step=(50, 30, 20), repeats=(
                       Repeat(None, Sample(9, 1.0, 5, PhaseTimes())),))  # fmt: skip
    out = magicdec("profile", "show", make.write(tmp_path / "p.jsonl", cell))[1]
    bars = [line.split()[:2] for line in out.splitlines() if line[:5].strip() in ("1", "2")]
    assert ["1", ".50"] in bars and ["2", "1.00"] in bars


FORMATS = ("vllm", "vllm-experimental", "vllm-sparse", "sglang", "tensorrt-llm", "llama.cpp",
           "aiconfigurator")  # fmt: skip


def exported(magicdec, path: Path, format: str, *more: object) -> tuple[int, str, str]:
    return magicdec("profile", "export", path, "--to", format, "--gamma", 3, *more)


@pytest.mark.parametrize("format", FORMATS)
def test_lookup_is_exported_where_the_engine_has_it(make, cells, tmp_path, magicdec, format):
    path = make.write(tmp_path / "p.jsonl", *cells)
    code, out, err = exported(magicdec, path, format, "--draft", "lookup", "--replay")
    if format == "vllm":
        config = json.loads(out)
        assert code == 0 and config["method"] == "ngram" and "model" not in config
        assert (config["prompt_lookup_min"], config["prompt_lookup_max"]) == (2, 5)
        assert config["num_speculative_tokens"] == 3 == len(config["synthetic_acceptance_rates"])
        assert "drafter: lookup for tiny-llama" in err
    elif format == "aiconfigurator":
        assert code == 0 and out.startswith("--nextn 3")
    else:
        assert code == 2 and len(err.splitlines()) == 1 and "lookup" in err


def test_a_draft_model_is_named_by_the_profile(make, cells, tmp_path, magicdec):
    path = make.write(tmp_path / "p.jsonl", *cells)
    code, out, err = exported(magicdec, path, "vllm", "--draft", "org/draftling", "--budget", 64)
    assert code == 0 and json.loads(out)["model"] == "org/draftling"
    assert "NOT EXPRESSED: the draft model's cache was bounded" in err
    more = ("--draft", "org/draftling", "--draft-model", "other")
    code, out, err = exported(magicdec, path, "vllm", *more)
    assert json.loads(out)["model"] == "other" and "not other" in err


def test_what_no_engine_has_says_so(make, cells, tmp_path, magicdec):
    path = make.write(tmp_path / "p.jsonl", *cells)
    code, _, err = exported(magicdec, path, "vllm", "--draft", "layers:2", "--draft-model", "m")
    assert code == 0 and "NOT EXPRESSED: no engine drafts by layers:2" in err
    code, out, err = exported(magicdec, path, "vllm", "--draft", "self", "--selector", "snapkv",
                              "--draft-model", "m")  # fmt: skip
    assert code == 0 and json.loads(out)["model"] == "m"
    assert "NOT EXPRESSED: vllm has no draft by the model itself over snapkv 256" in err
    code, _, err = exported(magicdec, path, "vllm-sparse", "--draft", "layers:2")
    assert code == 2 and "layers:2 snapkv 256" in err and len(err.splitlines()) == 1
    code, _, err = exported(magicdec, path, "vllm", "--draft", "eagle")
    assert code == 2 and "draft layers:2, lookup, org/draftling, self" in err


@pytest.mark.parametrize("format", FORMATS)
def test_the_models_own_sparse_draft_is_expressed_by_the_fork_alone(
    make, tmp_path, magicdec, format
):
    path = make.write(tmp_path / "p.jsonl", make.cell(selector="streaming"))
    names_no_draft = format in ("vllm-sparse", "aiconfigurator")
    given = () if names_no_draft else ("--draft-model", "m")
    code, out, err = exported(magicdec, path, format, *given)
    assert code == 0, err
    if format == "vllm-sparse":
        assert json.loads(out)["method"] == "sparse_attn"
        assert "NOT EXPRESSED: int8 draft weights" in err and "by the model itself" not in err
    else:
        assert f"NOT EXPRESSED: {format} has no draft by the model itself over streaming" in err


@pytest.mark.parametrize(
    ("way", "flags"),
    [
        ({"selector": "streaming"}, ("252", "4")),
        ({"selector": "streaming", "selector_options": (("sinks", 16),)}, ("240", "16")),
        ({"selector": "window"}, ("256", None)),
        ({"selector": "streaming", "draft": "org/draftling"}, ("252", "4")),
        ({"selector": "snapkv"}, None),
        ({"draft_kv": "full"}, None),
    ],
)
def test_sglang_is_told_the_window_that_it_has(make, tmp_path, magicdec, way, flags):
    path = make.write(tmp_path / "p.jsonl", drawn(make.cell(), **way))
    code, _, err = exported(magicdec, path, "sglang", "--draft-model", "m")
    assert code == 0
    if flags is None:
        assert "--speculative-draft-" not in err.replace("--speculative-draft-model-path", "")
        return
    window, sinks = flags
    assert f"--speculative-draft-window-size {window}" in err
    assert (f"--speculative-draft-sink-size {sinks}" in err) == (sinks is not None)


@pytest.mark.parametrize(("budget", "floor"), [(64, 64), (256, 256), (512, 256)])
def test_the_fork_is_told_a_floor_below_its_own(make, tmp_path, magicdec, budget, floor):
    path = make.write(tmp_path / "p.jsonl", drawn(make.cell(), selector="streaming", budget=budget))
    code, out, err = exported(magicdec, path, "vllm-sparse")
    assert code == 0 and json.loads(out)["sparse_attn_min_tokens"] == floor
    assert json.loads(out)["sparse_attn_ratio"] == budget / 1000
    assert ("by its default the fork reads 256 entries" in err) == (budget < 256)


def test_what_the_fork_cannot_do_is_one_line(make, tmp_path, magicdec):
    whole = drawn(make.cell(), selector="streaming", budget=2000)
    path = make.write(tmp_path / "p.jsonl", whole)
    code, out, err = exported(magicdec, path, "vllm-sparse")
    assert (code, out) == (2, "") and "ratio below 1" in err and len(err.splitlines()) == 1
    path = make.write(tmp_path / "q.jsonl", make.cell(selector="streaming"))
    code, out, err = exported(magicdec, path, "vllm-sparse", "--replay")
    assert (code, out) == (2, "") and "--replay" in err and len(err.splitlines()) == 1


def test_a_run_of_another_drafter_is_a_profile(make, tmp_path):
    """What `run --json` says of its drafter is believed."""
    from magicdec.profiles.recorded.reader import profile_of_run

    phases = dict.fromkeys(("prefill", "select", "draft", "verify", "commit", "other"), 1.0)
    run = {
        "env": {"magicdec": "0.1", "draft_weights": "same"}, "interrupted": False, "error": None,
        "config": {
            "gamma": 3, "model": "m", "dtype": "float32", "kv_dtype": "float32", "batch": 1,
            "max_new_tokens": 9, "selector": "snapkv", "selector_option": {}, "budget": 256,
            "temperature": 0.0, "draft_weights": "auto", "draft": "lookup", "draft_kv": "selected",
        },
        "rows": [{"document": "d", "prompt_tokens": 50}], "phases_s": phases,
        "decode": {"tokens": 8, "seconds": 5.0, "steps": 8},
        "speculative_decoding": {"num_spec_steps": 0, "num_draft_tokens": 0,
                                 "num_accepted_draft_tokens": 0},
    }  # fmt: skip
    (cell,) = profile_of_run(run, "run.json").cells
    assert cell.key.way == "lookup" and cell.key.budget is None


@pytest.mark.parametrize(
    "way,flags",
    [
        ({"draft": "lookup"}, "--draft lookup"),
        ({"draft_kv": "full"}, "--draft-kv full"),
        ({"draft": "layers:2+self"}, "--draft layers:2+self --selector snapkv --budget 256"),
        ({"draft": "org/tiny+self"}, "--draft org/tiny+self --selector snapkv --budget 256"),
        ({"draft": "layers:2", "temperature": 0.5},
         "--draft layers:2 --selector snapkv --budget 256 --temperature 0.5"),
    ],
)  # fmt: skip
def test_a_schedule_of_our_own_names_the_flags_of_any_drafter(make, tmp_path, magicdec, way, flags):
    path = make.write(tmp_path / "p.jsonl", drawn(make.cell(), **way))
    code, out, err = exported(magicdec, path, "magicdec")
    assert code == 0 and "gamma = 3" in out, err
    assert f"for magicdec run --gamma FILE {flags}\n" in err
    assert "NOT EXPRESSED" not in err
