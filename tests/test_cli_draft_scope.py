"""What only knows the self-drafter says so instead of filing other drafts as its own."""

from __future__ import annotations

import pytest

from magicdec.cli.main import run_command_line


@pytest.mark.parametrize("command", [["profile", "survey"], ["tune"]])
@pytest.mark.parametrize("draft", [["--draft", "lookup"], ["--draft-kv", "full"]])
def test_other_drafts_are_refused_before_anything_is_loaded(
    command, draft, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run_command_line([*command, "builtin:pydoc", *draft]) == 2
    assert "not known here as yet" in capsys.readouterr().err
