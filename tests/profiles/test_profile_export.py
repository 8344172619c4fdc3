"""`profile export`: every format as its engine reads it, and what must not be exported."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import Entry
from magicdec.profiles.export.registry import FORMATS
from magicdec.profiles.export.timings import read_timings
from magicdec.profiles.files.gamma_schedule import parse_schedule
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Verdict

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def sweep(make, tmp_path) -> Path:
    """γ 4 pays at batch 1, 2 at batch 4, and nothing at batch 16 unless the context is long."""
    cells = []
    for context, relief in ((1000, 1.0), (8000, 0.4)):
        for batch, base, slope in ((1, 0.10, 0.002), (4, 0.10, 0.06), (16, 0.25, 0.3)):
            for gamma in (1, 2, 4):
                verify = 0.1 + (base - 0.1 + slope * gamma) * relief
                cells.append(make.cell(batch, context, gamma, verify=verify, selector="streaming"))
    cells.append(make.cell(1, 1000, 1, verify=0.05, selector="snapkv"))
    return make.write(tmp_path / "sweep.jsonl", *cells)


CASES = {
    "vllm.json": ["--to", "vllm", "--draft-model", "meta/D", "--replay"],
    "vllm-experimental.json": ["--to", "vllm-experimental", "--draft-model", "meta/D"],
    "vllm-sparse.json": ["--to", "vllm-sparse", "--context", 8000],
    "sglang.json": ["--to", "sglang", "--draft-model", "meta/D", "--replay"],
    "tensorrt-llm.yaml": ["--to", "tensorrt-llm", "--draft-model", "meta/D", "--context", 1000],
    "tensorrt-llm-lower.yaml": ["--to", "tensorrt-llm", "--draft-model", 'a"b: #c',
                                "--schedule-keys", "lower"],
    "llama.cpp.args": ["--to", "llama.cpp", "--draft-model", "my model.gguf", "--replay"],
    "aiconfigurator.args": ["--to", "aiconfigurator"],
    "magicdec.toml": ["--to", "magicdec"],
    "cells.csv": ["--to", "csv"],
    "cells.md": ["--to", "md"],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_golden(sweep, magicdec, tmp_path, name):
    """UPDATE_GOLDEN=1 rewrites the files; read the difference before committing it."""
    written = tmp_path / name
    code, out, err = magicdec("profile", "export", sweep, *CASES[name], "-o", written)
    assert (code, out) == (0, ""), err
    notes = tmp_path / f"{name}.notes.md"
    for made in (written, notes):
        golden = GOLDEN / made.name
        if os.environ.get("UPDATE_GOLDEN"):
            golden.write_text(made.read_text())
        assert made.read_text() == golden.read_text()


def test_stdout_is_the_configuration_and_nothing_else(sweep, magicdec):
    code, out, err = magicdec("profile", "export", sweep, "--to", "vllm", "--draft-model", "D")
    assert code == 0
    assert json.loads(out)["num_speculative_tokens_per_batch_size"] == [
        [1, 2, 4], [3, 8, 2], [9, 16, 0]
    ]  # fmt: skip
    assert "NOT TRANSFERABLE" in err and "Test CPU" in err and "book.txt" in err
    assert "acceptance by position" in err


def test_a_schedule_follows_the_cells(sweep, magicdec):
    out = magicdec("profile", "export", sweep, "--to", "vllm-experimental", "--draft-model", "D")[1]
    entries = json.loads(out)["num_speculative_tokens_per_batch_size"]
    best: dict[tuple[int, int], int] = {}
    for cell in read_profile(sweep).cells:
        if cell.key.selector == "streaming" and cell.speedup > 1:
            place = (cell.key.batch, cell.key.context)
            best[place] = max(best.get(place, (0.0, 0)), (cell.speedup, cell.key.gamma))
    for batch in (1, 4, 16):
        for context in (1000, 8000):
            (gamma,) = (
                k for b0, b1, c0, c1, k in entries if b0 <= batch <= b1 and c0 <= context <= c1
            )
            assert gamma == best.get((batch, context), (0.0, 0))[1]


def test_of_drafters_that_all_lose_the_one_that_loses_least_is_exported(make, magicdec, tmp_path):
    slow, less = (
        make.cell(1, 1000, gamma, verify=verify, selector=selector)
        for gamma, verify, selector in ((1, 0.9, "h2o"), (1, 0.4, "streaming"))
    )
    path = make.write(tmp_path / "lost.jsonl", slow, less)
    asked = ("--to", "vllm", "--draft-model", "m")
    code, _, err = magicdec("profile", "export", path, *asked, "--gamma", "1")
    assert code == 0 and "streaming 256" in err and "h2o" not in err
    code, _, err = magicdec("profile", "export", path, *asked)
    assert code == 2 and "plain decoding is fastest" in err


def test_the_fixed_gamma_decides_which_drafter_is_exported(make, magicdec, tmp_path):
    times = (("h2o", 1, 0.08), ("h2o", 3, 0.3), ("streaming", 1, 0.12), ("streaming", 3, 0.1))
    cells = [make.cell(1, 1000, gamma, verify=t, selector=name) for name, gamma, t in times]
    path = make.write(tmp_path / "two.jsonl", *cells)
    for gamma, selector in ((1, "h2o"), (3, "streaming")):
        asked = ("--to", "vllm", "--draft-model", "m", "--gamma", gamma)
        assert f"{selector} 256" in magicdec("profile", "export", path, *asked)[2]


def test_one_gamma_everywhere_is_one_entry(make, magicdec, tmp_path):
    cells = [make.cell(batch, context, 2) for batch in (1, 4) for context in (1000, 8000)]
    path = make.write(tmp_path / "one.jsonl", *cells)
    out = magicdec("profile", "export", path, "--to", "magicdec")[1]
    assert parse_schedule(out).entries == (Entry(1, 1, 2),)


def test_tensorrt_keys_mean_the_same_batches_either_way(sweep, magicdec):
    found = {}
    for keys in ("upper", "lower"):
        out = magicdec("profile", "export", sweep, "--to", "tensorrt-llm", "--draft-model", "D",
                       "--schedule-keys", keys)[1]  # fmt: skip
        schedule = yaml.safe_load(out)["speculative_config"]["draft_len_schedule"]
        if keys == "upper":
            found[keys] = [schedule[min(k for k in schedule if k >= b)] for b in range(1, 17)]
        else:
            found[keys] = [schedule[max(k for k in schedule if k <= b)] for b in range(1, 17)]
    assert found["upper"] == found["lower"] == [4] * 2 + [2] * 6 + [0] * 8


def test_target_timings_choose_from_the_engines_own_costs(sweep, magicdec, tmp_path):
    """Ω = 1 + Σ rates; there a draft step is nearly free, so the longest draft is best."""
    rows = ["batch,gamma,plain_ms,draft_ms,verify_ms"]
    rows += [f"{b},{g},10,{0.1 if b == 1 else 20},{10 + g}" for b in (1, 64) for g in (1, 2, 4, 9)]
    table = tmp_path / "engine.csv"
    table.write_text("\n".join(rows))
    code, out, err = magicdec("profile", "export", sweep, "--to", "vllm", "--draft-model", "D",
                              "--selector", "streaming", "--target-timings", table)  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["num_speculative_tokens_per_batch_size"] == [[1, 8, 4], [9, 64, 0]]
    assert "NOT TRANSFERABLE" not in err and "engine.csv" in err
    forecast = 10 * (1 + 0.9 + 0.8 + 0.7 + 0.6) / (4 * 0.1 + 14)
    assert f"{forecast:.2f}×" in err
    assert "left out γ 9" in err


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_timings_in_other_formats(tmp_path, kind):
    row = {"batch": 4, "context": 8000, "gamma": 2, "plain_ms": 9, "draft_ms": 1.5, "verify_ms": 11}
    path = tmp_path / f"t.{kind}"
    if kind == "toml":
        path.write_text("[[timings]]\n" + "\n".join(f"{k} = {v}" for k, v in row.items()))
    else:
        path.write_text(json.dumps([row]))
    (timing,) = read_timings(path)
    assert (timing.batch, timing.context, timing.gamma) == (4, 8000, 2)
    assert timing.times.parts[:3] == pytest.approx((0.009, 0.0015, 0.011))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "batch,gamma\n1,2\n", "t.csv: columns plain_ms, draft_ms, verify_ms are missing"),
        ("t.csv", "batch,gamma,draft_ms,verify_ms\n1,2,1,1\n", "t.csv: column plain_ms is missing"),
        ("t.csv", "batch,gamma,plain_ms,draft_ms,verify_ms\n1,two,1,1,1\n", "'two'"),
        ("t.csv", "batch,gamma,plain_ms,draft_ms,verify_ms\n1,2,nan,1,1\n", "plain_ms"),
        ("t.csv", "batch,gamma,plain_ms,draft_ms,verify_ms\n1,2,0,1,1\n", "plain_ms"),
        ("t.csv", "batch,gamma,plain_ms,draft_ms,verify_ms\n" + "1,2,1,1,1\n" * 2, "two timings"),
        ("t.csv", "batch,gamma,plain_ms,draft_ms,verify_ms\n", "no timings"),
        ("t.csv", "", "t.csv is empty; give a file of timings"),
        (
            "t.csv",
            "batch,gamma,plain_ms,draft_ms,verify_ms,gamma \n",
            "two columns are",
        ),
        (
            "t.csv",
            "batch,gamma,plain_ms,draft_ms,verify_ms\n1,2,1,1,1,7\n",
            "line 2: '7' stands",
        ),
        ("t.csv", 'batch,"gamma', "t.csv: not a CSV file"),
        ("t.json", "[" * 100_000, "nested"),
        ("t.json", "{}", "timings"),
        ("t.toml", "timings = 3", "timings"),
        ("t.toml", "[[", "not valid TOML"),
        ("t.txt", "1", "neither"),
    ],
)
def test_timings_that_cannot_be_used(tmp_path, name, text, said):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_timings(path)


def test_timings_in_another_encoding_are_named_so(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("batch,gamma\n", encoding="utf-16")
    with pytest.raises(ConfigError, match=r"is not UTF-8 .*; give a file of timings"):
        read_timings(path)


def test_replay_in_tensorrt_counts_accepted_tokens_only(sweep, magicdec):
    """The length minus the token that every step gives."""
    err = magicdec("profile", "export", sweep, "--to", "tensorrt-llm", "--draft-model", "D",
                   "--gamma", 2, "--replay")[2]  # fmt: skip
    assert f"FORCE_NUM_ACCEPTED_TOKENS={0.9 + 0.8:g}" in err


def test_cells_that_were_not_lossless_are_not_exported(make, magicdec, tmp_path):
    lossy = replace(make.cell(4), lossless=Verdict(True, False, False))
    path = make.write(tmp_path / "p.jsonl", make.cell(1), lossy)
    _, out, err = magicdec("profile", "export", path, "--to", "vllm", "--draft-model", "D")
    assert json.loads(out)["num_speculative_tokens_per_batch_size"] == [[1, 1, 3]]
    assert "not being lossless: 1" in err
    path = make.write(tmp_path / "p.jsonl", lossy)
    code, _, err = magicdec("profile", "export", path, "--to", "aiconfigurator")
    assert code == 2 and "losslessness" in err


def test_a_given_gamma_needs_no_costs(make, magicdec, tmp_path):
    """Acceptance is what travels: it can be replayed where speculation does not pay here."""
    path = make.write(tmp_path / "p.jsonl", make.cell(8, gamma=3, verify=9.0))
    arguments = ("profile", "export", path, "--to", "vllm", "--draft-model", "D", "--replay")
    code, _, err = magicdec(*arguments)
    assert code == 2 and "leave speculation off" in err
    code, out, err = magicdec(*arguments, "--gamma", 3)
    assert code == 0, err
    config = json.loads(out)
    assert config["synthetic_acceptance_rates"] == pytest.approx([0.9, 0.8, 0.7])
    assert "num_speculative_tokens_per_batch_size" not in config
    assert magicdec(*arguments, "--gamma", 4)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "vllm"], "--draft-model"),
        (["--to", "vllm", "--selector", "quest"], "selector snapkv, streaming"),
        (["--to", "vllm-sparse"], "--context"),
        (["--to", "vllm-sparse", "--selector", "snapkv"], "snapkv"),
        (["--to", "vllm", "--draft-model", "D", "--batch", "3"], "batch 1, 4, 16"),
        (["--to", "tensorrt-llm", "--draft-model", "D", "--batch", "16", "--context", "1000"],
         "leave speculation off"),
        (["--to", "nonsense"], "nonsense"),
        (["--to", "llama.cpp"], "--draft-model"),
        (["--to", "vllm", "--draft-model", "D", "--gamma", "0"], "--gamma 0 would not speculate"),
        (["--to", "aiconfigurator", "--gamma", "-2"], "--gamma -2"),
        (["--to", "csv", "--check"], "--check"),
        (["--to", "vllm", "--check"], ".jsonl: the configuration is damaged"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported_is_one_line(sweep, magicdec, arguments, said):
    code, out, err = magicdec("profile", "export", sweep, *arguments)
    assert (code, out) == (2, "")
    assert said in err and len(err.splitlines()) == 1


def test_tensorrt_cannot_start_short(make, magicdec, tmp_path):
    slow, fast = make.cell(1, verify=9.0), make.cell(8, verify=0.1)
    path = make.write(tmp_path / "p.jsonl", slow, fast)
    code, _, err = magicdec("profile", "export", path, "--to", "tensorrt-llm", "--draft-model", "D")
    assert code == 2 and "smallest batch" in err


def test_an_export_does_not_replace_what_it_cannot_write(sweep, magicdec, tmp_path):
    code, _, err = magicdec("profile", "export", sweep, "--to", "csv", "-o", tmp_path)
    assert code == 2 and "is a folder" in err


def test_every_format_has_a_golden_file():
    assert {name.rpartition(".")[0] for name in CASES} >= set(FORMATS)


def test_arguments_survive_the_shell(sweep, magicdec):
    out = magicdec("profile", "export", sweep, "--to", "llama.cpp", "--draft-model", "$(rm) 'x")[1]
    parts = shlex.split(out)
    assert parts[parts.index("--spec-draft-model") + 1] == "$(rm) 'x"
