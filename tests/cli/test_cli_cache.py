"""magicdec cache list and clear."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.cache.prefill_files import PrefillFiles


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two stored prefills of one model, 1,064 bytes with headers, and a converted model."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(folder))
    stored = PrefillFiles("ab" * 16, 10**6)
    about = {"model": "tiny", "dtype": "float32", "kv_dtype": "bfloat16", "attention": "sdpa"}
    with stored.writing(about):
        for n in (1, 2):
            stored.write(f"{n:032x}", [memoryview(bytes(500))])
    model = folder / "models" / "tiny-0123"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(bytes(3000))
    return folder


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command_line(["cache", *arguments]) == 0
    return capsys.readouterr().out


def test_the_list_in_every_format(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefills, model = json.loads(output(capsys, "list", "--format", "json"))
    assert prefills["kind"] == "prefills" and prefills["name"] == "tiny"
    assert 1064 < prefills["size"] < 1300  # and the file about them
    assert prefills["details"] == "float32, KV bfloat16, sdpa"
    assert prefills["last used"].startswith("20")
    assert (model["kind"], model["name"], model["size"]) == ("model", "tiny-0123", 3000)
    assert Path(model["path"]) == cache / "models" / "tiny-0123"
    rows = list(csv.DictReader(io.StringIO(output(capsys, "list", "--format", "csv"))))
    assert [row["kind"] for row in rows] == ["prefills", "model"]
    assert "tiny-0123" in output(capsys, "list")
    assert output(capsys, "list", "--format", "md").count("\n") == 4


def test_clear_takes_prefills_unless_told_otherwise(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output(capsys, "clear").startswith("prefills: ")
    assert not list(cache.rglob("*.kv")) and list(cache.rglob("*.safetensors"))
    assert output(capsys, "clear", "--models") == "models: 3 kB freed\n"
    assert not list(cache.rglob("*.safetensors"))
    assert json.loads(output(capsys, "list", "--format", "json")) == []


def test_clear_both(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "clear", "--models", "--prefills").count("freed") == 2
    assert json.loads(output(capsys, "list", "--format", "json")) == []


def test_an_empty_cache_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "none"))
    assert json.loads(output(capsys, "list", "--format", "json")) == []
    assert output(capsys, "clear", "--models", "--prefills").count("0") == 2
    assert not (tmp_path / "none").exists()


def test_prefills_without_their_description_are_listed(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (about,) = cache.rglob("about.json")
    about.write_text("{")
    assert json.loads(output(capsys, "list", "--format", "json"))[0]["name"] == "unknown"


def test_a_model_that_is_being_converted_is_left_alone(
    cache: Path, capsys: pytest.CaptureFixture[str], hold: Callable[..., Any]
) -> None:
    with hold(cache / "models" / ".tiny-0123.lock") as pid:
        assert run_command_line(["cache", "clear", "--models"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "tiny-0123" in line and f"process {pid}" in line
    assert list(cache.rglob("*.safetensors"))


def test_pipes_and_devices_in_the_cache_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path))
    entry = "models/smollm2-135m-b179c9523d0e/entry.json"
    for name in ("calibrations/a.json", entry, "prefills/x/about.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        os.mkfifo(tmp_path / name)
    assert run_command_line(["calibrate", "--show"]) == 2
    assert "a.json: cannot be read: it is no file of that kind" in capsys.readouterr().err
    (tmp_path / "calibrations/a.json").unlink()
    (tmp_path / "calibrations/a.json").symlink_to("/dev/zero")
    assert run_command_line(["calibrate", "--show"]) == 2
    assert run_command_line(["models", "list", "--format", "csv"]) == 0
    assert run_command_line(["cache", "list", "--format", "csv"]) == 0
    assert "unknown" in capsys.readouterr().out
