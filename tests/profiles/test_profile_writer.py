"""The writer goes on where a file ends, whatever ended it, and touches no other file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Cell
from magicdec.profiles.recorded.writer import ProfileWriter


def test_a_writer_resumes_after_a_kill(make, tmp_path):
    path = tmp_path / "p.jsonl"
    with ProfileWriter(path, make.header) as writer:
        writer.append(make.cell(1))
        writer.append(Cell(key=make.cell(2).key, status="failed", error="out of memory"))
    with path.open("ab") as file:
        file.write(b'{"key":{"batch":4,"con')
    with ProfileWriter(path, make.header) as writer:
        assert writer.finished == {make.cell(1).key}
        assert writer.failed == {make.cell(2).key}
        writer.append(make.cell(2))
        writer.append(make.cell(4))
        assert not writer.failed
    profile = read_profile(path)
    assert [cell.key.batch for cell in profile.cells] == [1, 2, 4]
    assert profile.warnings == () and len(profile.finished) == 3


def test_a_last_line_without_its_line_end_is_kept(make, tmp_path):
    path = make.write(tmp_path / "p.jsonl", make.cell(1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with ProfileWriter(path, make.header) as writer:
        assert writer.finished == {make.cell(1).key}
        writer.append(make.cell(2))
    assert len(read_profile(path).cells) == 2


def test_a_torn_header_is_begun_again(make, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"schema":"magicdec.profile/1","crea')
    with ProfileWriter(path, make.header) as writer:
        writer.append(make.cell(1))
    assert len(read_profile(path).cells) == 1


@pytest.mark.parametrize(
    "text", ['{"schema":"magicdec.profile/mine, precious"}', '{"schema":"magicdec.profile/mine, ']
)
def test_what_only_looks_like_a_torn_header_is_kept(make, tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.json"):
        ProfileWriter(path, make.header)
    assert path.read_text() == text


def test_another_model_or_file_is_not_continued(make, tmp_path):
    path = make.write(tmp_path / "p.jsonl", make.cell(1))
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another model"):
        ProfileWriter(path, replace(make.header, model="other"))
    assert path.read_bytes() == before
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir")
    with pytest.raises(ConfigError, match="damaged"):
        ProfileWriter(letter, make.header)
    assert letter.read_text() == "Dear Sir"
