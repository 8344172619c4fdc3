"""What the command line costs before it does anything, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "textual", "numpy")
PROBE = """
import json, sys
from magicdec.cli.main import run_command_line
code = run_command_line(sys.argv[1:])
print(json.dumps([code, [name for name in {heavy!r} if name in sys.modules]]), file=sys.stderr)
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magicdec.cli", *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["selectors"],
        ["config", "show"],
        ["terms"],
        ["cache", "list"],
        ["run", "no-such-file.txt", "--selector", "nobody"],
    ],
    ids=" ".join,
)
def test_a_cheap_command_imports_nothing_heavy(arguments: list[str]) -> None:
    probe = [sys.executable, "-c", PROBE.format(heavy=HEAVY), *arguments]
    result = subprocess.run(probe, capture_output=True, text=True)
    _, imported = json.loads(result.stderr.splitlines()[-1])
    assert imported == []


def test_help_goes_to_stdout_and_names_every_command() -> None:
    result = command("--help")
    assert result.returncode == 0 and result.stderr == ""
    for name in ("run", "selectors", "models", "cache", "config", "terms", "doctor"):
        assert f"\n  {name} " in result.stdout


def test_version() -> None:
    result = command("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("magicdec 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--gama", "3", "x"], "--gamma"),
        (["nonsense"], "nonsense"),
        (["models", "pull"], "ALIAS"),
        (["selectors", "--format", "yaml"], "yaml"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(arguments: list[str], said: str) -> None:
    result = command(*arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_a_group_without_a_command_shows_its_help() -> None:
    result = command("models")
    assert result.returncode == 2
    assert result.stderr.startswith("Usage: magicdec models")


def test_a_closed_pipe_is_no_error_message() -> None:
    shell = f"{sys.executable} -m magicdec.cli terms --format csv | head -n 1"
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert result.stdout == "term,definition\n" and result.stderr == ""
