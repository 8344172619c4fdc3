"""Files that a command writes: refused before any work is spent on them, written whole."""

from __future__ import annotations

import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from magicdec.engine.errors import ConfigError, MagicdecError, require
from magicdec.engine.untrusted import clean
from magicdec.profiles.files.files import replacing

MEASURED = re.compile(rb'"schema"\s*:\s*"magicdec\.(profile|run)/')
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
BEGINNING = 4096  # bytes within which a document of ours names its schema


def check_output(
    path: Path, option: str = "--output", *, inputs: Iterable[str | Path] = (),
    new: bool = False, continued: bool = False,
) -> None:  # fmt: skip
    """Raises ConfigError for a file that cannot be written, or that is worth more than what would
    replace it: one that the command reads, or one with measurements.

    new: it must not exist yet. continued: the command reads what is there and appends to it, so
    that it may hold measurements, and is to be a file proper.
    """
    require("\0" not in str(path), f"{option} {str(path)!r} has a NUL in it; give another name")
    said = f"{option} {path}"
    require(
        str(path) != "-",
        f"{said} would be a file of that name, and standard output is not for this; give a file",
    )
    require(
        not any(same_file(path, each) for each in inputs),
        f"{said} is what this command reads; give another file",
    )
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _check_folder(path, said)
        return
    except OSError as error:
        raise _unwritable(said, error) from error
    require(not stat.S_ISDIR(mode), f"{said} is a folder; give another file")
    require(not new, f"{said} exists; give another file")
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device"
        require(not continued, f"{said} is {kind}, and has to be read again; give another file")
        return
    require(
        continued or not _holds_measurements(path),
        f"{said} holds what magicdec measured; give another file",
    )
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
    except OSError as error:
        raise _unwritable(said, error) from error


def but_stdout(path: Path | None) -> Path | None:
    """A file to write; None for standard output, by whatever name."""
    return None if path is not None and str(path) in STDOUT else path


def same_file(path: str | Path, other: str | Path) -> bool:
    """Also through links, and when neither exists."""
    try:
        if os.path.exists(path) and os.path.exists(other):
            return os.path.samefile(path, other)
        return os.path.realpath(path) == os.path.realpath(other)
    except (OSError, ValueError):  # ValueError: a NUL
        return False


@contextmanager
def written(path: Path, *, kept: bool = False) -> Iterator[TextIO]:
    """A text file, see `replacing`. Raises ConfigError where it cannot be written."""
    try:
        with replacing(path, kept=kept) as made, made.open("w", encoding="utf-8") as stream:
            yield stream
    except (OSError, UnicodeEncodeError) as error:
        raise _unwritable(str(path), error) from error


def goes_on(path: Path) -> str:
    """What a command that was interrupted says of the file it appends to."""
    if os.path.lexists(path):
        return f"{path} keeps what is finished; the same command goes on"
    return "nothing was measured"


def unfinished(path: Path, error: OSError) -> MagicdecError:
    """A write that failed in the middle of the work, to a file that is appended to; with the
    error's notes."""
    kept = "it keeps what is finished, and the same command goes on"
    besides = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return MagicdecError(
        f"{path} cannot be written: {error.strerror}; "
        f"{kept if os.path.lexists(path) else 'give another file'}{besides}"
    )


def _check_folder(path: Path, said: str) -> None:
    """Whether a file can be made there: asked by making one, which permissions alone do not tell
    (a file system may be read-only, or take no files)."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    folder = target.parent
    require(os.path.isdir(folder), f"{said}: there is no folder {str(folder)!r}; create it")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise _unwritable(said, error) from error


def _holds_measurements(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MEASURED.search(file.read(BEGINNING)) is not None
    except OSError:
        return False


def _unwritable(said: str, error: OSError | UnicodeEncodeError) -> ConfigError:
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"{said} cannot be written: {reason}; give another file")


def shell_line(words: Sequence[str], *, ascii: bool = False) -> str:
    """A command line to be copied; ascii: for a terminal that has no other characters."""
    return " ".join(shell_word(word, ascii=ascii) for word in words)


def shell_word(word: str, *, ascii: bool = False) -> str:
    """Quoted where it has to be: as $'...\\033...' where a character must not be shown."""
    if all(_showable(c, ascii) for c in word):
        return shlex.quote(word)
    return "$'" + "".join(_escaped(c, ascii) for c in word) + "'"


def _showable(c: str, ascii: bool) -> bool:
    return clean(c) == c and (c.isascii() or not ascii)


def _escaped(c: str, ascii: bool) -> str:
    if not _showable(c, ascii):
        return "".join(f"\\{byte:03o}" for byte in os.fsencode(c))
    return f"\\{c}" if c in "'\\" else c
