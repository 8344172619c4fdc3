"""Reading documents: encodings, line ends, and one-line refusals."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.engine.text import documents
from magicdec.engine.text.documents import Document, read_document, read_documents
from magicdec.engine.text.ruler.names import read_sources

DRIVES_A_TERMINAL = "a\033]0;pwned\007\u202e.txt"


@pytest.fixture
def write(tmp_path: Path):
    def write(data: bytes, name: str = "doc.txt") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return str(path)

    return write


def refusal(source: str, stdin: io.BytesIO | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read_document(source, stdin=stdin)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_plain_utf8_is_untouched(write):
    source = write("naïve\n\tcafé 😀\n".encode())
    assert read_document(source) == Document("doc.txt", "naïve\n\tcafé 😀\n")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfhello", "hello"),
        (b"a\r\nb\rc\nd\r\n\r\ne", "a\nb\nc\nd\n\ne"),
        ("é\r\nb".encode("utf-16"), "é\nb"),
        ("\ufeffé😀".encode("utf-16-be"), "é😀"),
        ("\ufeffé😀".encode("utf-32-le"), "é😀"),
    ],
    ids=["bom", "line-ends", "utf-16", "utf-16-be", "utf-32-le"],
)
def test_marks_and_line_ends(write, data, text):
    assert read_document(write(data)) == Document("doc.txt", text)


def test_invalid_bytes_are_replaced_counted_and_located(write):
    document = read_document(write(b"\xef\xbb\xbfab\xffcd\xe2\x82ef\xfe"))
    assert document.text == "ab\ufffdcd\ufffdef\ufffd"
    [warning] = document.warnings
    assert "4 invalid UTF-8 bytes" in warning
    assert "offset 5" in warning
    assert "doc.txt" in warning


def test_one_invalid_byte_is_singular(write):
    [warning] = read_document(write(b"a\xff")).warnings
    assert "1 invalid UTF-8 byte," in warning


def test_a_replacement_character_in_the_text_is_no_error(write):
    assert read_document(write("a\ufffdb".encode())).warnings == ()


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b" \r\n\t\n", "white space"),
        (b"\x7fELF\x00\x01", "NUL after 4"),
        ("text".encode("utf-16-le"), "NUL"),
        (b"\xff\xfea\x00b", "damaged UTF-16"),
    ],
    ids=["empty", "only-bom", "blank", "binary", "utf-16-without-mark", "half-a-unit"],
)
def test_unusable_bytes_are_refused(write, data, cause):
    message = refusal(write(data))
    assert cause in message
    assert "doc.txt" in message


def test_missing_file_and_directory(tmp_path):
    missing = str(tmp_path / "nothing.txt")
    assert missing in refusal(missing)
    assert "builtin:pydoc" in refusal(missing)
    assert "directory" in refusal(str(tmp_path))
    assert "null byte" in refusal("a\0b")


def test_unreadable_file(write):
    source = write(b"text")
    os.chmod(source, 0)
    user = os.geteuid()
    if user == 0:  # root may read everything: be nobody for a while
        os.seteuid(65534)
    try:
        assert "Permission denied" in refusal(source)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("source", ["/dev/zero", "/dev/full", "/dev/null"])
def test_a_device_is_refused_unread(source, tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to(source)
    for name in (source, str(link)):
        assert f"{name!r} is a device; give a text file" in refusal(name)
    with pytest.raises(ConfigError, match="is a device"):
        read_sources([f"ruler:niah-multikey?haystack={source}"])


def test_a_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("through a pipe",))
    writer.start()
    assert read_document(str(pipe)) == Document("pipe", "through a pipe")
    writer.join()


def test_more_than_a_document_may_have_is_refused(write, monkeypatch):
    monkeypatch.setattr(documents, "MOST_BYTES", 2**20)
    source, data = write(b"x" * 2**20), b"x" * (2**20 + 1)
    assert len(read_document(source).text) == 2**20
    for said in (refusal(write(data)), refusal("-", io.BytesIO(data))):
        assert "is larger than 1 MiB; give a part of it" in said


def test_no_name_drives_the_terminal(write):
    shown = "a\ufffd]0;pwned\ufffd\ufffd.txt"
    source = write(b"1", f"x/{DRIVES_A_TERMINAL}")
    assert read_document(source).name == shown
    same = read_documents([source, write(b"2", f"y/{DRIVES_A_TERMINAL}")])
    assert [d.name[-len(shown) - 2 :] for d in same] == [f"x/{shown}", f"y/{shown}"]
    (task,) = read_sources([f"ruler:niah-multikey?haystack={source}"])
    assert task.name == f"ruler:niah-multikey?haystack={same[0].name}"


def test_stdin():
    assert read_document("-", stdin=io.BytesIO(b"a\r\nb")) == Document("stdin", "a\nb")
    assert "stdin is empty" in refusal("-", io.BytesIO(b""))


def test_pydoc_is_long_and_deterministic():
    document = read_document("builtin:pydoc")
    assert document == read_document("builtin:pydoc")
    assert document.name == "builtin:pydoc"
    assert len(document.text) > 300_000
    assert document.text.startswith('The "assert" statement\n')
    assert document.warnings == ()


def test_python_without_pydoc_topics(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert "pydoc_data" in refusal("builtin:pydoc")


def test_unknown_builtin_names_the_known_ones():
    message = refusal("builtin:moby")
    assert "'builtin:moby'" in message
    assert "builtin:pydoc" in message


def test_several_documents_keep_their_order(write):
    sources = [write(b"one", "b.txt"), "-", write(b"two", "a.txt")]
    documents = read_documents(sources, stdin=io.BytesIO(b"piped"))
    assert [(d.name, d.text) for d in documents] == [
        ("b.txt", "one"),
        ("stdin", "piped"),
        ("a.txt", "two"),
    ]


def test_equal_names_are_told_apart_by_path(write):
    sources = [write(b"1", "x/a.txt"), write(b"2", "y/a.txt"), write(b"3", "b.txt")]
    assert [d.name for d in read_documents(sources)] == [sources[0], sources[1], "b.txt"]


def test_stdin_twice_and_no_document():
    with pytest.raises(ConfigError, match="2 times"):
        read_documents(["-", "-"], stdin=io.BytesIO(b"x"))
    with pytest.raises(ConfigError, match="no document"):
        read_documents([])
