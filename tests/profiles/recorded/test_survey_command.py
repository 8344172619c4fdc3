"""`magicdec profile survey` on a tiny model: table, JSON and CSV of the same estimates."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.draft_spec import MEASURED_BY


@pytest.fixture
def survey(
    model: Path, document: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """survey(...): exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        fixed = ["--model", str(model), "--device", "cpu", "--batch", "2", "--context", "80"]
        code = run_command_line(
            ["profile", "survey", str(document), *fixed, "--max-new-tokens", "16", "--ignore-eos",
             "-q", "--selector", "streaming,full", "--budget", "24,40", *arguments]
        )  # fmt: skip
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_all_formats_tell_the_same(
    survey: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = survey("--format", "json", "--gamma", "1,3")
    assert code == 0, err
    drafters = json.loads(out)["drafters"]
    assert [(d["selector"], d["budget"]) for d in drafters] == [
        ("streaming", 24), ("streaming", 40), ("full", None)
    ]  # fmt: skip
    assert drafters[2]["alpha"] == 1.0, "the whole cache drafts what the target says"

    code, out, _ = survey("--format", "csv", "--gamma", "1,3")
    lines = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and len(lines) == 3 * 2
    estimates = [each for d in drafters for each in d["by_gamma"]]
    for line, each in zip(lines, estimates, strict=True):
        assert int(line["gamma"]) == each["gamma"]
        assert float(line["mean_acceptance_length"]) == pytest.approx(
            each["mean_acceptance_length"], abs=1e-3
        )

    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = survey("--gamma", "1-8")
    _, *rows = out.splitlines()
    assert code == 0 and len(rows) == 3 and max(map(len, out.splitlines())) <= 80
    shown = {each["gamma"]: each["mean_acceptance_length"] for each in drafters[0]["by_gamma"]}
    assert "…" not in out, "no number is cut"
    assert f"{shown[1]:.2f}" in rows[0].split() and f"{shown[3]:.2f}" in rows[0].split()
    assert "tokens per step" in err

    monkeypatch.setenv("COLUMNS", "50")
    code, out, err = survey("--gamma", "1-8")
    assert code == 0 and max(map(len, out.splitlines())) <= 50 and "…" not in out
    assert "no room for weights" in err and "8" not in out.splitlines()[0]


def test_what_cannot_be_surveyed_is_refused_in_one_line(
    survey: Callable[..., tuple[int, str, str]],
) -> None:
    for arguments, said in (
        (["--gamma", "0"], "drafts nothing"),
        (["--budget", "4"], "budget 4"),
        (["--gamma", "3-1"], "backwards"),
        (["--draft", "lookup+self"], f"measure the cascade with {MEASURED_BY}"),
    ):
        code, out, err = survey(*arguments)
        assert code == 2 and out == "" and said in err and len(err.splitlines()) == 1


def test_a_draft_model_is_named_by_its_weights_too(
    survey: Callable[..., tuple[int, str, str]], model: Path, tmp_path: Path
) -> None:
    """Another model of its name, after a copy or a training, is another drafter."""
    from safetensors.torch import load_file, save_file

    draft = tmp_path / "draft"
    shutil.copytree(model, draft)
    asked = ("--format", "json", "--gamma", "2", "--draft", f"self,{draft}")
    found = []
    for change in (0.0, 0.5):
        weights = load_file(draft / "model.safetensors")
        weights["model.norm.weight"] += change
        save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
        code, out, err = survey(*asked)
        assert code == 0, err
        record = json.loads(out)
        found.append(record["env"]["draft_identities"])
        assert record["env"]["identity"] not in ("", None)
    assert [list(identities) for identities in found] == [[str(draft)]] * 2
    assert found[0][str(draft)] == record["env"]["identity"], "a copy is the same model"
    assert found[0] != found[1]
