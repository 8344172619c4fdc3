"""Reads files that a user names, which may be anything: without end, a device, a folder."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO

from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import clean

LONGEST_PATH = 4096  # characters


def read_bounded(path: str | Path, most: int, *, instead: str = "", smaller: str = "") -> bytes:
    """The bytes of a file or pipe. Raises ConfigError, also when there are more than `most`.

    instead: what its message advises, by default what fits any file; smaller: the same of a file
    that is too large.
    """
    name = repr(clean(str(path), LONGEST_PATH))
    try:
        data = None if _is_device(Path(path)) else _read(Path(path), most + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {name}; {instead or 'check the spelling'}") from None
    except IsADirectoryError:
        raise ConfigError(f"{name} is a directory; {instead or 'give a file'}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        advice = instead or "give another file"
        raise ConfigError(f"cannot read {name}: {reason}; {advice}") from error
    if data is None:
        raise ConfigError(f"{name} is a device; {instead or 'give a file'}")
    return _bounded(data, name, most, smaller)


def read_stream(stream: BinaryIO, name: str, most: int, *, smaller: str = "") -> bytes:
    """The same of an open stream, which may be a terminal."""
    return _bounded(stream.read(most + 1), name, most, smaller)


def _bounded(data: bytes, name: str, most: int, smaller: str) -> bytes:
    if len(data) > most:
        raise ConfigError(
            f"{name} is larger than {most / 2**20:.0f} MiB; {smaller or 'what belongs here is not'}"
        )
    return data


def _is_device(path: Path) -> bool:
    """A device may never end, and some answer being opened."""
    mode = path.stat().st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)
