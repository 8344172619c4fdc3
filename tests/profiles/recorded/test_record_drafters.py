"""A sweep over drafters: who drafts is an axis like the others, and multiplies nothing idly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.profiles.recorded.reader import read_profile

Record = Callable[..., int]
SMALL = ("--context", "80", "--gamma", "2", "--max-new-tokens", "8", "--repeat", "1")


@pytest.mark.parametrize("temperature", ["0", "0.8"])
def test_every_drafter_is_measured_and_lossless(
    record: Record, model: Path, tmp_path: Path, temperature: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "drafters.jsonl"
    drafts = ("--draft", f"self,lookup,layers:1,{model}", "--budget", "24,40")
    drafts += ("--draft-kv", "selected,full", "--temperature", temperature)
    assert record("-o", str(path), *drafts, grid=SMALL) == 0, capsys.readouterr().err
    assert str(tmp_path).encode() not in path.read_bytes(), "no folder of the user's"
    profile = read_profile(path)
    name = model.name
    # Budgets multiply what selects, and nothing else; lookup reads no KV at all.
    assert [cell.key.way for cell in profile.cells] == [
        "snapkv 24", "snapkv 40", "full", "lookup",
        "layers:1 snapkv 24", "layers:1 snapkv 40", "layers:1 full KV",
        f"{name} snapkv 24", f"{name} snapkv 40", f"{name} full KV",
    ]  # fmt: skip
    assert profile.header.grid.draft == ("self", "lookup", "layers:1", name)
    for cell in profile.cells:
        assert cell.status == "ok" and cell.speedup
        assert cell.lossless.checked == (temperature == "0")
        assert cell.lossless.ok in (True, None)
        if cell.key.draft_kv == "full" and cell.key.kind != "layers" and temperature == "0":
            assert cell.acceptance_rate == 1.0, "the same weights over the same cache"

    before = path.read_bytes()
    assert record("-o", str(path), *drafts, grid=SMALL) == 0
    assert path.read_bytes() == before, "all of it was there"


def test_a_model_under_the_self_draft_keeps_its_name(
    record: Record, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cascade.jsonl"
    cascade = ("-o", str(path), "--draft", f"{model}+self", "--budget", "24")
    assert record(*cascade, grid=SMALL) == 0, capsys.readouterr().err
    (cell,) = read_profile(path).cells
    assert cell.key.kind == "cascade" and cell.key.draft == f"{model.name}+self"
    assert cell.key.way == f"{model.name}+self snapkv 24"
    assert cell.status == "ok" and cell.lossless.ok
    before = path.read_bytes()
    assert str(tmp_path).encode() not in before, "no folder of the user's"
    assert record(*cascade, grid=SMALL) == 0 and path.read_bytes() == before


def test_trees_are_cells_like_others(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trees.jsonl"
    grid = ("--tree", "none,specexec,sequoia", "--tree-nodes", "6", "--draft", "self,lookup")
    assert record("-o", str(path), *grid, "--budget", "24", grid=SMALL) == 0, (
        capsys.readouterr().err
    )
    cells = read_profile(path).cells
    assert [cell.key.way for cell in cells] == [
        "snapkv 24", "snapkv 24 specexec 6", "snapkv 24 sequoia 6", "lookup"
    ]  # fmt: skip
    for cell in cells[1:3]:
        assert cell.status == "ok" and cell.lossless.ok and cell.key.tree_nodes == 6
        assert len(cell.drafted_per_position) <= 2 < cell.num_draft_tokens / cell.num_spec_steps
    from magicdec.cli.main import run_command_line

    for format in ("table", "csv", "json"):
        assert run_command_line(["profile", "show", str(path), "--format", format]) == 0
    code = run_command_line(["profile", "export", str(path), "--to", "vllm", "--tree", "specexec",
                             "--gamma", "2", "--draft-model", "m"])  # fmt: skip
    assert code == 2 and "cannot express a tree" in capsys.readouterr().err


def test_combinations_that_cannot_be_are_left_out(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trees.jsonl"
    grid = ("--tree", "none,specexec", "--tree-nodes", "6", "--selector", "snapkv,quest")
    quick = ("--budget", "24", "--attention", "sdpa")  # nothing to be built first
    assert record("-o", str(path), *grid, *quick, grid=SMALL) == 0
    assert capsys.readouterr().err.splitlines() == [
        "note: no cells of tree specexec over quest, which chooses entries again and again"
    ]
    cells = read_profile(path).cells
    assert {cell.status for cell in cells} == {"ok"}
    assert [cell.key.way for cell in cells] == ["snapkv 24", "snapkv 24 specexec 6", "quest 24"]

    for asked in (("--tree", "sequoia"), ("--draft", "lookup+self")):
        new = ("-o", str(tmp_path / "never.jsonl"), *asked, "--selector", "quest,topk")
        assert record(*new, grid=SMALL) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "over quest, which chooses" in line and "give snapkv" in line
    assert not (tmp_path / "never.jsonl").exists()


def test_a_draft_that_cannot_work_fails_its_own_cells(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "drafters.jsonl"
    drafts = ("--draft", "layers:9,lookup,no/such-model")
    assert record("-o", str(path), *drafts, "--budget", "40", grid=SMALL) == 1
    assert "2 cells failed" in capsys.readouterr().err
    deep, lookup, missing = read_profile(path).cells
    assert deep.status == "failed" and "layers:9" in str(deep.error)
    assert lookup.status == "ok" and lookup.key.way == "lookup"
    assert missing.status == "failed" and "no/such-model" in str(missing.error)


@pytest.mark.parametrize(
    ("draft", "code", "said"),
    [
        ("foo", 3, "draft 'foo' is not self, lookup"),
        ("layers:30", 2, "layers:30 needs a model of more layers"),
        ("layers:30,layers:9+self", 2, "layers:30 needs a model of more layers"),
    ],
)
def test_drafts_none_of_which_can_be_are_refused_before_there_is_a_file(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    draft: str, code: int, said: str,
) -> None:  # fmt: skip
    path = tmp_path / "never.jsonl"
    assert record("-o", str(path), "--draft", draft, grid=SMALL) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line and not path.exists()


def test_bad_drafts_are_refused_before_anything_is_opened(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "never.jsonl"
    for draft in ("layers:0", "layers:x", "self,,lookup", "lookup,lookup+"):
        assert record("-o", str(path), "--draft", draft, grid=SMALL) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not path.exists()


def test_two_draft_models_of_one_name_are_refused(
    record: Record, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "elsewhere" / model.name
    other.parent.mkdir()
    other.symlink_to(model)
    path = tmp_path / "never.jsonl"
    assert record("-o", str(path), "--draft", f"{model},{other}", grid=SMALL) == 2
    assert "have one name" in capsys.readouterr().err
