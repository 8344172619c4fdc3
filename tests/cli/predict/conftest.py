"""What tests of `magicdec predict` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file of a user or of this folder counts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str]], str]:
    """Runs what must be refused in one line; that line."""

    def run(arguments: Sequence[str]) -> str:
        assert run_command_line(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1
        return captured.err

    return run
