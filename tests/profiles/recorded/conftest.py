"""A tiny checkpoint over bytes with a document, and the command line on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line

GRID = ("--context", "60,90", "--gamma", "1,3", "--budget", "40", "--max-new-tokens", "12")


@pytest.fixture
def model(checkpoint: Path) -> Path:
    return checkpoint


@pytest.fixture
def document(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In a folder of its own, where the commands run without the user's files."""
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "doc.txt"
    path.write_text("All the world is a stage, and all the men and women merely players. " * 8)
    return path


@pytest.fixture
def record(model: Path, document: Path) -> Callable[..., int]:
    """record("-o", FILE, ...): the exit code of a sweep of two contexts and two γ, two rows each.

    Options given later win.
    """

    def run(*arguments: str, grid: tuple[str, ...] = GRID, quiet: bool = True) -> int:
        fixed = ("--model", str(model), "--device", "cpu", "--batch", "2", "--ignore-eos")
        fixed += ("-q",) if quiet else ()
        return run_command_line(
            ["profile", "record", str(document), *fixed, *grid, "--repeat", "2", *arguments]
        )

    return run
