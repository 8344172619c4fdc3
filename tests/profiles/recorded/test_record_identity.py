"""A sweep goes on with what it began with: by content, since a name may come to mean another."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from magicdec.cli.main import run_command_line
from magicdec.profiles.recorded.reader import read_profile

Record = Callable[..., int]
ONE = ("--context", "60", "--gamma", "1", "--budget", "40", "--max-new-tokens", "6")


@pytest.fixture
def model(tmp_path: Path, checkpoint: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))


@pytest.fixture
def begun(record: Record, tmp_path: Path) -> Path:
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path), grid=ONE) == 0
    return path


def _refused(
    record: Record, path: Path, capsys: pytest.CaptureFixture[str], *more: str, why: str
) -> None:
    whole = path.read_bytes()
    capsys.readouterr()
    assert record("-o", str(path), *more, grid=ONE) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and why in error and "give another file" in error
    assert path.read_bytes() == whole


def test_the_same_weights_and_text_go_on_under_other_names(
    record: Record, begun: Path, model: Path, document: Path, tmp_path: Path,
) -> None:  # fmt: skip
    whole = begun.read_bytes()
    copy, text = tmp_path / "other-name", tmp_path / "renamed.txt"
    shutil.copytree(model, copy)
    shutil.copy(document, text)
    asked = ["profile", "record", str(text), "--model", str(copy), *ONE, "--device", "cpu", "-q",
             "--batch", "2", "--ignore-eos", "--repeat", "2", "-o", str(begun)]  # fmt: skip
    assert run_command_line(asked) == 0
    assert begun.read_bytes() == whole, "nothing is measured again"


def _change_weights(folder: Path, _make: Callable[..., Path]) -> None:
    """One number, where no sample of a large tensor would lie."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if "down_proj" in name)
    weights[name][20, 30] += 0.25
    save_file(weights, path, metadata={"format": "pt"})


def _change_rope(folder: Path, _make: Callable[..., Path]) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_theta": 50_000.0, "rope_type": "default"}
    (folder / "config.json").write_text(json.dumps(config))


def _other_model(folder: Path, make: Callable[..., Path]) -> None:
    make(folder, seed=77)


@pytest.mark.parametrize("change", [_change_weights, _change_rope, _other_model])
def test_another_model_of_the_same_name_and_size_is_not_continued_with(
    record: Record, begun: Path, model: Path, capsys: pytest.CaptureFixture[str],
    change: Callable[..., None], make_checkpoint: Callable[..., Path],
) -> None:  # fmt: skip
    change(model, make_checkpoint)
    _refused(record, begun, capsys, why="another model of the name model (weights ")


def test_a_copy_of_the_model_goes_on(
    record: Record, begun: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "elsewhere" / "model"
    shutil.copytree(model, moved)  # with new times
    (moved / "model.safetensors").touch()
    whole = begun.read_bytes()
    capsys.readouterr()
    assert record("-o", str(begun), "--model", str(moved), grid=ONE) == 0
    assert begun.read_bytes() == whole and capsys.readouterr().err == ""


def test_another_draft_model_of_the_same_name_is_not_continued_with(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    make_checkpoint: Callable[..., Path],
) -> None:  # fmt: skip
    draft = make_checkpoint(tmp_path / "small", num_hidden_layers=1, seed=5)
    path = tmp_path / "sweep.jsonl"
    drafts = ("--draft", f"self,{draft}")
    assert record("-o", str(path), *drafts, grid=ONE) == 0
    of = {cell.key.draft: cell.draft_identity for cell in read_profile(path).cells}
    assert of["self"] is None and len(str(of["small"])) == 32
    make_checkpoint(draft, num_hidden_layers=1, seed=6)
    _refused(record, path, capsys, *drafts, why="another draft model of the name small (weights ")


@pytest.mark.parametrize(
    "other",
    [
        ["--prompt", "Why?"],
        ["--take", "tail"],
        ["--rows", "windows"],
        ["--stop", "x"],
        ["--repetition-penalty", "1.3"],
    ],
)
def test_other_rows_of_the_same_document_are_not_continued_with(
    record: Record, begun: Path, capsys: pytest.CaptureFixture[str], other: list[str]
) -> None:
    _refused(record, begun, capsys, *other, why=f"other settings ({other[0][2:]} ")
    assert b"Why?" not in begun.read_bytes()


def test_another_machine_with_a_processor_of_the_same_name_is_not_continued_on(
    record: Record, begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "magicdec.engine.environment.machine", lambda: "GenuineIntel 6/1/1, 64 cores"
    )
    _refused(record, begun, capsys, why="elsewhere (machine ")


def test_a_file_of_an_earlier_version_goes_on_and_says_what_nobody_knows(
    record: Record, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *cells = map(json.loads, begun.read_text().splitlines())
    for name in ("identity", "machine"):
        del header["environment"][name]
    del header["workload"]["conditions"], cells[0]["draft_identity"]
    begun.write_text("".join(json.dumps(line) + "\n" for line in (header, *cells)))
    whole = begun.read_bytes()
    capsys.readouterr()
    assert record("-o", str(begun), grid=ONE) == 0
    said = capsys.readouterr().err
    assert "kept no weights or machine or other settings" in said and len(said.splitlines()) == 1
    assert begun.read_bytes() == whole


def test_an_identity_is_of_numbers_wherever_they_lie(checkpoint: Path, tmp_path: Path) -> None:
    from magicdec.engine.loading.open import open_checkpoint
    from magicdec.engine.loading.weights import content_of, identity_of

    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    (copy / "model.safetensors").touch()
    one, two = (open_checkpoint(str(folder)) for folder in (checkpoint, copy))
    assert content_of(one.spec, one.weights) == content_of(two.spec, two.weights)
    assert identity_of(one.spec, one.weights) != identity_of(two.spec, two.weights)
    assert torch.equal(*(c.weights["model.norm.weight"] for c in (one, two)))


def test_a_run_and_a_survey_name_what_they_measured_by_content_too(
    record: Record, begun: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = read_profile(begun).header
    (source,) = recorded.documents
    schedule = tmp_path / "plan.toml"
    schedule.write_text(
        'schema = "magicdec.gamma/1"\n[[gamma]]\nbatch = 1\ncontext = 1\ngamma = 2\n'
    )
    common = [str(tmp_path / "doc.txt"), "--model", str(model), "--context", "60", "-q"]
    capsys.readouterr()
    for arguments in (
        ["run", *common, "--max-new-tokens", "6", "--gamma", str(schedule), "--json"],
        ["profile", "survey", *common, "--gamma", "2", "--format", "json"],
    ):
        assert run_command_line(arguments) == 0
        text = capsys.readouterr().out
        env = json.loads(text)["env"]
        assert env["identity"] == recorded.identity and env["machine"]
        assert env["documents"] == {"doc.txt": source.sha256}
        if arguments[0] == "run":
            (tmp_path / "run.json").write_text(text)
    profile = read_profile(tmp_path / "run.json")
    assert [s.sha256 for s in profile.header.documents] == [source.sha256]
    assert profile.header.identity == recorded.identity
    assert re.fullmatch(r"plan\.toml@[0-9a-f]{6}", profile.cells[0].key.gamma_policy)
    assert str(tmp_path) not in str(profile)
