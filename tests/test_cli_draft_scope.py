"""What only knows the self-drafter says so instead of filing other drafts as its own."""

from __future__ import annotations

import sys

import pytest

from magicdec.cli.main import run_command_line


@pytest.mark.parametrize("draft", [["--draft", "lookup"], ["--draft-kv", "full"]])
def test_other_drafts_are_refused_before_anything_is_loaded(draft, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("magicdec.cli.tui_command._check_terminal", lambda docs: None)
    assert run_command_line(["tui", "builtin:pydoc", *draft]) == 2
    assert "not known here as yet" in capsys.readouterr().err
