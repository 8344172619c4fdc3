"""Grids on the command line, and sweeps in a TOML file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.profile.record_command import RECORD_GRIDS
from magicdec.cli.settings.grids import SweepFile, grid_values, read_grids, read_sweep_file
from magicdec.engine.errors import ConfigError
from magicdec.profiles.recorded.reader import read_profile

EXAMPLE = Path(__file__).parents[3] / "examples" / "sweep.toml"


def read(path: Path, text: str) -> SweepFile:
    path.write_text(text)
    return read_sweep_file(path, tuple(RECORD_GRIDS))


def test_a_grid_has_each_value_once_and_in_order() -> None:
    assert grid_values("gamma", "4,1-3,2", "--gamma") == (4, 1, 2, 3)
    assert grid_values("context", "1000-4000*2", "--context") == (1000, 2000, 4000)
    assert grid_values("selector", "snapkv, streaming,snapkv", "--selector") == (
        "snapkv",
        "streaming",
    )
    assert grid_values("temperature", "0,0.5", "--temperature") == (0.0, 0.5)
    for name, text in (("gamma", "3-1"), ("temperature", "0,,1"), ("temperature", "warm")):
        with pytest.raises(ConfigError, match=f"--{name}"):
            grid_values(name, text, f"--{name}")


def test_a_grid_that_is_not_given_is_the_setting(document: Path) -> None:
    flags = {"gamma": "1,2", "budget": None, "max_new_tokens": "5"}
    grids = read_grids(flags, ("gamma", "budget"))
    assert grids.values("gamma") == (1, 2)
    assert grids.values("budget") == (grids.settings.budget,)
    assert grids.settings.max_new_tokens == 5


def test_the_example_is_a_sweep() -> None:
    found = read_sweep_file(EXAMPLE, tuple(RECORD_GRIDS))
    assert found.documents == ("builtin:pydoc",) and found.repeat == 3
    assert found.output == "profile.jsonl"
    assert grid_values("batch", found.flags["batch"], "--batch") == (1, 4)
    assert grid_values("context", found.flags["context"], "--context") == (1000, 2000, 4000)
    assert found.flags["ignore_eos"] is True and found.flags["max_new_tokens"] == "64"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gama = 3", "gama"),
        ("gamma = true", "gamma"),
        ("gamma = []", "gamma"),
        ('gamma = "9-1"', "gamma"),
        ("max-new-tokens = 'many'", "max-new-tokens"),
        ("repeat = 0", "repeat"),
        ("repeat = true", "repeat"),
        ("documents = 'a.txt'", "documents"),
        ("output = 3", "output"),
        ("gamma = ", "not valid TOML"),
        ("gamma = " + "[" * 5000, "not valid TOML: nested too deeply"),
        ("batch = " + "9" * 5000, "not valid TOML"),
        ("batch = 0x" + "f" * 5000, "batch: "),
        ("gamma" + ".a" * 1900 + " = 1", "gamma must be a value, a list or a grid"),
        ("documents" + ".a" * 1900 + " = 1", "documents must be a list"),
        ("batch = 0", "bad.toml: batch: 0 is outside"),
        ("model = ''", "model must be a text that is not empty"),
    ],
)
def test_what_a_file_gets_wrong_is_one_line(
    record: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    text: str, said: str,
) -> None:  # fmt: skip
    path = tmp_path / "bad.toml"
    path.write_text(text)
    assert record("-o", "a.jsonl", "--sweep", str(path)) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and said in error and "bad.toml" in error
    assert "--" not in error and len(error) < 500
    assert not (tmp_path / "a.jsonl").exists()


def test_a_missing_file_is_named(record: Callable[..., int], capsys: pytest.CaptureFixture[str]):
    assert record("--sweep", "none.toml") == 2
    assert "there is no file 'none.toml'" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_key(tmp_path: Path) -> None:
    assert read(tmp_path / "a.toml", "\ufeffoutput = 'a.jsonl'").output == "a.jsonl"


def test_a_sweep_may_come_through_a_pipe_but_not_from_a_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("repeat = 2",))
    writer.start()
    assert read_sweep_file(pipe, tuple(RECORD_GRIDS)).repeat == 2
    writer.join()
    with pytest.raises(ConfigError, match="/dev/zero: is no file; give a TOML file"):
        read_sweep_file(Path("/dev/zero"), tuple(RECORD_GRIDS))


def test_options_beside_the_file_win(
    model: Path, record: Callable[..., int], tmp_path: Path
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        'documents = ["none.txt"]\noutput = "here.jsonl"\ncontext = 60\ngamma = [1, 2]\n'
        "budget = 40\nmax-new-tokens = 4\nrepeat = 9\n"
    )
    # The command line has a document, --repeat 2 and its own γ; the rest is the file's.
    assert record("--sweep", str(path), "--gamma", "2", grid=()) == 0
    profile = read_profile(tmp_path / "here.jsonl")
    (cell,) = profile.cells
    assert (cell.key.context, cell.key.gamma, len(cell.repeats)) == (60, 2, 2)
    assert profile.header.max_new_tokens == 4
