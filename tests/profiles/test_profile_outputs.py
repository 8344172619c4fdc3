"""What `profile show` and `profile export` write: nothing over a profile, and all or nothing."""

from __future__ import annotations

import csv
import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

EXPORT = ("profile", "export", "p.jsonl", "--to", "csv", "-o")
SHOW = ("profile", "show", "p.jsonl", "--svg")


@pytest.fixture
def recorded(make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make.write(tmp_path / "p.jsonl", make.cell(1), make.cell(4))


@pytest.fixture
def little_room() -> Iterator[None]:
    """No file of more than a few bytes can be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command", [EXPORT, SHOW], ids=["export", "show"])
@pytest.mark.parametrize("name", ["p.jsonl", "link", "twin", "./p.jsonl", "other.jsonl"])
def test_no_profile_is_written_over(recorded, magicdec, command, name):
    Path("link").symlink_to("p.jsonl")
    os.link("p.jsonl", "twin")
    Path("other.jsonl").write_bytes(recorded.read_bytes())
    before = recorded.read_bytes()
    code, out, err = magicdec(*command, name)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert Path(name).name in err and "give another file" in err
    assert Path(name).read_bytes() == before == recorded.read_bytes()


def test_a_run_document_is_not_written_over_either(recorded, magicdec):
    Path("run.json").write_text('{\n "schema": "magicdec.run/1"}')
    assert magicdec(*EXPORT, "run.json")[0] == 2
    assert Path("run.json").read_text() == '{\n "schema": "magicdec.run/1"}'


def test_an_export_and_its_notes_are_written_together_or_not_at_all(recorded, magicdec):
    Path("q.csv.notes.md").mkdir()
    code, _, err = magicdec(*EXPORT, "q.csv")
    assert code == 2 and "q.csv.notes.md is a folder" in err
    assert not Path("q.csv").exists()


@pytest.mark.parametrize("command", [EXPORT, SHOW], ids=["export", "show"])
def test_a_full_disk_leaves_what_was_there(recorded, magicdec, little_room, command):
    Path("old").write_text("worth keeping")
    names = sorted(os.listdir())
    code, _, err = magicdec(*command, "old")
    assert code == 2 and len(err.splitlines()) == 1 and "old cannot be written: File too" in err
    assert Path("old").read_text() == "worth keeping" and sorted(os.listdir()) == names


def test_a_link_stays_one_and_what_it_points_to_is_written(recorded, magicdec):
    Path("folder").mkdir()
    Path("q.csv").symlink_to("folder/real.csv")  # not there yet
    for _ in range(2):
        assert magicdec(*EXPORT, "q.csv")[0] == 0
        assert Path("q.csv").is_symlink()
        assert Path("folder/real.csv").read_text().startswith("batch,")
    Path("folder/real.csv").chmod(0o640)
    assert magicdec(*EXPORT, "q.csv")[0] == 0
    assert Path("folder/real.csv").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_standard_output_by_any_name_has_no_notes_beside_it(recorded, magicdec, name):
    _, plain, notes = magicdec(*EXPORT[:-1])
    assert magicdec(*EXPORT, name) == (0, plain, notes) and notes.startswith("measured: ")
    predict = ("predict", "--hardware", "H100", "--model", "llama-3.1-8b", "--format", "csv")
    assert magicdec(*predict, "-o", name) == magicdec(*predict)
    assert os.listdir() == ["p.jsonl"]


def test_a_pipe_has_none_either(recorded, magicdec):
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    code, out, err = magicdec(*EXPORT, "pipe")
    assert (code, out) == (0, "") and err.startswith("measured: ")
    assert os.read(reader, 2**20).startswith(b"batch,context,")
    os.close(reader)
    assert sorted(os.listdir()) == ["p.jsonl", "pipe"]


@pytest.mark.parametrize(
    "command", [SHOW, ("profile", "record", "p.txt", "--context", "9", "-o"),
                ("tune", "p.txt", "--context", "9", "-o")],
    ids=["show", "record", "tune"],
)  # fmt: skip
def test_a_dash_is_refused_where_standard_output_is_not_for_it(recorded, magicdec, command):
    code, out, err = magicdec(*command, "-")
    assert (code, out) == (2, "") and "- would be a file of that name" in err
    assert os.listdir() == ["p.jsonl"]


@pytest.mark.parametrize("name", ["=cmd|'/c calc'!A1", "+1", "-2+3", "@sum", "\t=1"])
def test_a_name_cannot_begin_a_formula_in_a_spreadsheet(make, magicdec, tmp_path, name):
    cell = make.cell(1)
    cell = replace(cell, key=replace(cell.key, draft=name))
    path = make.write(tmp_path / "p.jsonl", cell)
    for command in (("show", path, "--format", "csv"), ("export", path, "--to", "csv")):
        code, out, _ = magicdec("profile", *command)
        (row,) = csv.DictReader(out.splitlines())
        assert code == 0 and row["draft"][0] not in "=+-@\t" and row["batch"] == "1"
        assert row["draft"].removeprefix("'").lstrip("\ufffd") == name.lstrip("\t")
