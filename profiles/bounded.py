"""Reads files that a user names, which may be anything: without end, a device, a folder."""

from __future__ import annotations

import stat
from pathlib import Path

from magicdec.engine.errors import ConfigError
from magicdec.profiles.storage.fields import clean


def read_bounded(path: str | Path, most: int) -> bytes:
    """The bytes of a file or pipe. Raises ConfigError, also when there are more than `most`."""
    name = clean(str(path))
    try:
        data = None if _is_device(Path(path)) else _read(Path(path), most + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {name!r}; check the spelling") from None
    except IsADirectoryError:
        raise ConfigError(f"{name!r} is a directory; give a file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {name!r}: {reason}") from error
    if data is None:
        raise ConfigError(f"{name!r} is a device; give a file")
    if len(data) > most:
        raise ConfigError(
            f"{name!r} is larger than {most / 2**20:.0f} MiB; what belongs here is not"
        )
    return data


def _is_device(path: Path) -> bool:
    """A device may never end, and some answer being opened."""
    mode = path.stat().st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)
