"""Large files of converted models: no result comes of weights that changed since they were made."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.errors import WrongWeightsError
from magicdec.engine.loading import file_hashes
from magicdec.engine.loading.open import open_checkpoint

Make = Callable[..., tuple[Path, Any]]
OTHER = 0x40  # a bit of an exponent


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny weights count as large."""
    monkeypatch.setattr(file_hashes, "LARGE", 65536)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of large files, as they are hashed."""
    heard: list[str] = []
    really = file_hashes._sha256

    def listen(file: Any) -> str:
        if os.fstat(file.fileno()).st_size >= file_hashes.LARGE:
            heard.append(Path(file.name).name)
        return really(file)

    monkeypatch.setattr(file_hashes, "_sha256", listen)
    return heard


def weights_of(cache_dir: Path) -> Path:
    (path,) = (cache_dir / "models").glob("*/model.safetensors")
    assert path.stat().st_size >= file_hashes.LARGE
    return path


def damage(path: Path) -> None:
    """In the middle, in place; the size and the time of change stay."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(status.st_size // 2)
        file.write(bytes(4096))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_what_nothing_hints_at_is_not_hashed_again(
    gguf_file: Make, cache_dir: Path, hashed: list[str]
) -> None:
    file, _ = gguf_file()
    open_checkpoint(str(file)).require_intact()
    assert hashed == ["model.safetensors"], "when it was made"
    open_checkpoint(str(file)).require_intact()
    assert len(hashed) == 1


@pytest.mark.parametrize("hint", ["time", "day", "future", "unknown", "copy"])
def test_a_hint_has_it_hashed_once(
    hint: str, gguf_file: Make, cache_dir: Path, hashed: list[str]
) -> None:
    file, _ = gguf_file()
    open_checkpoint(str(file))
    weights = weights_of(cache_dir)
    noted = weights.with_name(file_hashes.CHECKED)
    looks, seen = json.loads(noted.read_text())[weights.name]
    if hint == "time":
        os.utime(weights)
    elif hint == "copy":
        weights.with_name("copy").write_bytes(weights.read_bytes())
        weights.with_name("copy").replace(weights)
    elif hint == "unknown":
        noted.write_text("[" * 100_000)
    else:
        seen += {"day": -file_hashes.DAY - 1, "future": 3600}[hint]
        noted.write_text(json.dumps({weights.name: [looks, seen]}))
    hashed.clear()
    open_checkpoint(str(file)).require_intact()
    assert hashed == [weights.name]
    open_checkpoint(str(file)).require_intact()
    assert hashed == [weights.name]
    looks, seen = json.loads(noted.read_text())[weights.name]
    assert abs(time.time() - seen) < 60


def test_damage_is_told_once_and_made_good(
    gguf_file: Make, cache_dir: Path, hashed: list[str]
) -> None:
    file, _ = gguf_file()
    open_checkpoint(str(file))
    weights = weights_of(cache_dir)
    right = weights.read_bytes()
    damage(weights)
    opened = open_checkpoint(str(file))
    with pytest.raises(WrongWeightsError, match=r"model\.safetensors has changed .* Run the comm"):
        opened.require_intact()
    open_checkpoint(str(file)).require_intact()
    assert weights.read_bytes() == right


def test_an_entry_of_an_earlier_version_is_sealed_as_it_is(
    gguf_file: Make, cache_dir: Path, hashed: list[str]
) -> None:
    file, _ = gguf_file()
    open_checkpoint(str(file))
    weights = weights_of(cache_dir)
    manifest = weights.with_name(file_hashes.MANIFEST)
    now = json.loads(manifest.read_text())
    digest = now["files"][weights.name][1]
    now["files"][weights.name][1] = None
    manifest.write_text(json.dumps(now))
    weights.with_name(file_hashes.CHECKED).unlink()
    heard: list[str] = []
    open_checkpoint(str(file), lambda what, share: heard.append(what)).require_intact()
    assert heard == [], "nothing is converted or fetched again"
    assert json.loads(manifest.read_text())["files"][weights.name][1] == digest
    damage(weights)
    with pytest.raises(WrongWeightsError):
        open_checkpoint(str(file)).require_intact()


@pytest.mark.parametrize("command", ["run", "survey", "record", "draft"])
def test_no_command_delivers_what_wrong_weights_said(
    command: str, gguf_file: Make, cache_dir: Path, tmp_path: Path, capsys: Any
) -> None:
    file, _ = gguf_file()
    open_checkpoint(str(file))
    document, profile = tmp_path / "doc.txt", tmp_path / "p.jsonl"
    document.write_text("a cat sat there 13 times, " * 20)
    common = [str(document), "--max-new-tokens", "6", "--no-prefill-cache"]
    common += ["--context", "60", "-q"] if command in ("run", "draft") else ["--context", "60"]
    asked = {
        "run": ["run", *common, "--model", str(file), "--compare", "--budget", "16"],
        "survey": ["profile", "survey", *common, "--model", str(file), "--budget", "16"],
        "record": ["profile", "record", *common, "--model", str(file), "--budget", "16"],
        "draft": ["run", *common, "--model", str(file), "--draft", str(file), "--budget", "16"],
    }[command]
    if command == "record":
        asked += ["-o", str(profile)]
    damage(weights_of(cache_dir))
    assert run_command_line(asked) == 3
    out, err = capsys.readouterr()
    assert out == ""
    told = [line for line in err.splitlines() if line.startswith("magicdec: ")]
    assert len(told) == 1
    assert "is damaged: model.safetensors has changed since it was made" in told[0]
    if profile.exists():
        assert len(profile.read_text().splitlines()) == 1, "the header alone"
    capsys.readouterr()
    assert run_command_line(asked) == 0, "the next run makes it anew"
