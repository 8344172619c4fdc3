"""What does not know trees says so instead of filing them as something else."""

from __future__ import annotations

import pytest

from magicdec.cli.main import run_command_line


@pytest.mark.parametrize("command", [["profile", "survey"], ["tune"]])
def test_trees_are_refused_before_anything_is_loaded(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command_line([*command, "builtin:pydoc", "--tree", "specexec"]) == 2
    assert "--tree is for `magicdec run` and `magicdec profile record`" in capsys.readouterr().err
