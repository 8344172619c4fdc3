"""Schedule files: what is read, what is refused, and what export writes."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import Entry
from magicdec.profiles.files.gamma_schedule import (
    SCHEMA,
    parse_schedule,
    read_schedule,
    schedule_text,
)

GOOD = f'schema = "{SCHEMA}"\n[[gamma]]\nbatch = 1\ncontext = 1000\ngamma = 3\n'


def test_a_file_is_read(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(GOOD)
    schedule = read_schedule(path)
    assert schedule.entries == (Entry(1, 1000, 3),) and schedule.source == "plan.toml"


entries = st.builds(Entry, st.integers(1, 10**6), st.integers(1, 10**8), st.integers(0, 32))


@given(st.lists(entries, min_size=1, max_size=30, unique_by=lambda e: (e.batch, e.context)))
def test_what_is_written_is_read_back(given):
    assert parse_schedule(schedule_text(given)).entries == tuple(given)


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "schema must be"),
        ('schema = "magicdec.gamma/2"', "got 'magicdec.gamma/2'"),
        ("schema = 3", "schema must be"),
        (GOOD.split("[[")[0], "'gamma' is missing"),
        (GOOD + "gama = 1", "unknown key 'gama'; did you mean 'gamma'"),
        ("extra = 1\n" + GOOD, "unknown key 'extra'"),
        (GOOD.replace("= 3", "= 33"), "'gamma' must be a whole number up to 32, got 33"),
        (GOOD.replace("= 3", "= -1"), "a whole number from 0, got -1"),
        (GOOD.replace("= 3", f"= ['{'x' * 3000}']"), "'gamma' must be a whole number, got"),
        (GOOD.replace("= 3", "= true"), "must be a whole number, got true"),
        (GOOD.replace("= 3", "= 2.5"), "must be a whole number, got 2.5"),
        (GOOD.replace("batch = 1", "batch = 0"), "'batch' must be a whole number from 1, got 0"),
        (GOOD.replace("batch = 1\n", ""), "'batch' is missing"),
        (GOOD.replace("1000", "99999999999"), "up to 1,000,000,000, got"),
        (GOOD + GOOD.split("\n", 1)[1], "two entries for batch and context"),
        (GOOD + GOOD.split("\n", 1)[1] * 10_000, "up to 10,000, got a list of 10001 items"),
        ("gamma = [1, 2]\n" + GOOD.split("\n")[0], "must be a table"),
        ("not toml", "not valid TOML"),
        ("a = " + "[" * 3000, "not valid TOML"),
        ("x" * 5000 + " = 1\n" + GOOD, "unknown key 'xxx"),
        ("x." * 5000 + "x = 1", "more than 2,000 dots"),
    ],
)
def test_what_is_refused(tmp_path, text, message):
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_schedule(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 400


def test_files_that_are_none_are_refused(tmp_path):
    for path, said in (
        (tmp_path, "is a folder; give"),
        (tmp_path / "none.toml", "there is no file"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_schedule(path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "large.toml").write_text("# " + "x" * 1000 + "\n" * 2**20)
    os.symlink("/dev/zero", tmp_path / "zero.toml")
    for name, said in (("bytes", "is no text"), ("large", "larger"), ("zero", "is no file")):
        with pytest.raises(ConfigError, match=said):
            read_schedule(tmp_path / f"{name}.toml")
