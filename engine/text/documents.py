"""Reads documents: files, standard input, and a long text that every Python brings along."""

from __future__ import annotations

import codecs
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from magicdec.engine.errors import ConfigError, require
from magicdec.engine.untrusted import LONGEST_PATH, clean, read_bounded, read_stream

STDIN = "-"
_BUILTIN = "builtin:"
MOST_BYTES = 256 * 2**20
_SMALLER = "give a part of it, as with `head -c 100M`"

# UTF-32 first: its little-endian mark begins with the one of UTF-16.
_WIDE_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True, slots=True)
class Document:
    """A text with LF line ends, the name to show for it, and what was odd about its bytes.

    The name is harmless to a terminal, whatever the file is called.
    """

    name: str
    text: str
    warnings: tuple[str, ...] = ()

    @property
    def content(self) -> str:
        """What tells it from another document of its name."""
        return self.text


class Named(Protocol):
    """A document, or texts that are generated."""

    @property
    def name(self) -> str: ...

    @property
    def content(self) -> str:
        """What tells it from another of its name."""
        ...


def digests(documents: Iterable[Named]) -> dict[str, str]:
    """By name, the SHA-256 of each text, or of a sample of what is generated."""
    return {each.name: hashlib.sha256(each.content.encode()).hexdigest() for each in documents}


def read_documents(sources: Sequence[str], *, stdin: BinaryIO | None = None) -> list[Document]:
    """Reads each source, see `read_document`; files with equal names are named by their paths."""
    require(bool(sources), f"no document given; {_choices()}")
    require(
        sources.count(STDIN) <= 1,
        f"standard input ({STDIN}) is given {sources.count(STDIN)} times but can be read once",
    )
    documents = [read_document(source, stdin=stdin) for source in sources]
    uses = Counter(document.name for document in documents)
    return [
        document
        if uses[document.name] == 1
        else replace(document, name=clean(source, LONGEST_PATH))
        for source, document in zip(sources, documents, strict=True)
    ]


def read_document(source: str, *, stdin: BinaryIO | None = None) -> Document:
    """Reads a file path, "-" (`stdin`, by default the process's own) or "builtin:NAME".

    UTF-8, or UTF-16 and UTF-32 with a byte order mark. Invalid UTF-8 is replaced and warned
    about. Raises ConfigError when the source cannot be read, is a device, has more than MOST_BYTES,
    is binary or has no text.
    """
    if source.startswith(_BUILTIN):
        return _read_builtin(source)
    require(bool(source), f"a document name is empty; {_choices()}")
    if source == STDIN:
        if stdin is None:
            require(sys.stdin is not None, "standard input is closed; give a file")
            stdin = sys.stdin.buffer
        return _decode("stdin", read_stream(stdin, "stdin", MOST_BYTES, smaller=_SMALLER))
    data = read_bounded(source, MOST_BYTES, instead=_choices(), smaller=_SMALLER)
    return _decode(clean(Path(source).name), data)


def _choices() -> str:
    builtins = " or ".join(_BUILTIN + name for name in sorted(_BUILTINS))
    return f"give a text file, {STDIN} for standard input, or {builtins}"


def _decode(name: str, data: bytes) -> Document:
    warnings: tuple[str, ...] = ()
    wide = next((codec for mark, codec in _WIDE_MARKS.items() if data.startswith(mark)), None)
    if wide is not None:
        try:
            text = data.decode(wide)
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{name} is damaged {wide.upper()} at byte {error.start}; save it as UTF-8"
            ) from None
    else:
        text, warnings = _decode_utf8(name, data)
    nul = text.find("\0")
    require(
        nul < 0,
        f"{name} is binary (NUL after {nul} characters); give a text file, preferably UTF-8",
    )
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    require(bool(text), f"{name} is empty; give a document with some text")
    require(not text.isspace(), f"{name} holds only white space; give a document with some text")
    return Document(name, text, warnings)


def _decode_utf8(name: str, data: bytes) -> tuple[str, tuple[str, ...]]:
    try:
        return data.decode(), ()
    except UnicodeDecodeError as error:
        first = error.start
    invalid = len(data) - len(data.decode(errors="ignore").encode())
    warning = (
        f"{name}: replaced {invalid} invalid UTF-8 byte{'s' if invalid > 1 else ''}, "
        f"the first at offset {first}; save the document as UTF-8 if it is in another encoding"
    )
    return data.decode(errors="replace"), (warning,)


def _read_builtin(source: str) -> Document:
    name = source.removeprefix(_BUILTIN)
    known = ", ".join(_BUILTIN + known for known in sorted(_BUILTINS))
    require(name in _BUILTINS, f"there is no built-in document {source!r}; choose from {known}")
    return Document(source, _BUILTINS[name]())


def _pydoc() -> str:
    """The language reference behind Python's `help()`: some 70,000 words of technical prose."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ConfigError(
            f"{_BUILTIN}pydoc needs the pydoc_data package, which this Python at "
            f"{sys.prefix} lacks; give a text file instead"
        ) from None
    return "\n\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"


_BUILTINS: dict[str, Callable[[], str]] = {"pydoc": _pydoc}
