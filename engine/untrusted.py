"""Makes names and values that nobody vouches for fit for a terminal; bounded reading."""

from __future__ import annotations

import math
import re
import stat
import unicodedata
from pathlib import Path
from typing import BinaryIO

from magicdec.engine.errors import ConfigError

_DIGITS = re.compile(r"Exceeds the limit \(\d+ digits\) for .*set_int_max_str_digits\(\)[\w ]*")
NAME = 200  # characters of a name that are kept


def clean(text: str, limit: int = NAME) -> str:
    """`text` for a terminal or a table: one line, no control, format or unassigned characters."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(
        "\ufffd" if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" else c for c in cut
    )


def last_part(name: str) -> str:
    """A document's name without folders of either kind."""
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name


def model_name(name: str) -> str:
    """A hub's id as it is, a path without its folders."""
    local = name.startswith(("/", "~", ".")) or "\\" in name or name.count("/") > 1
    return last_part(name) if local else name


def brief(value: object, limit: int = NAME) -> str:
    """`value` as Python writes it, no longer than that; whatever it is, there is a text."""
    try:
        return clean(repr(value), limit)
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        return "what is too long or nested too deeply to be shown"


def plain_words(error: BaseException) -> str:
    """What it says; Python's advice to programmers on long integers is none to a user."""
    return _DIGITS.sub(
        "a whole number of thousands of digits, which nothing here takes; shorten it", str(error)
    )


def shown(value: object) -> str:
    """A value in a message: short, and harmless to a terminal."""
    match value:
        case dict():
            return f"an object of {len(value)} members"
        case list():
            return f"a list of {len(value)} items"
        case str():
            return repr(clean(value, 40))
        case int() if not isinstance(value, bool) and abs(value) >= 10**20:
            return f"an integer of {value.bit_length()} bits"
        case float() if not math.isfinite(value):
            return str(value)
        case None:
            return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def for_spreadsheet(text: str) -> str:
    """A cell of CSV that spreadsheets show and do not calculate: names may begin like formulas."""
    return f"'{text}" if len(text) > 1 and text[0] in "=+-@\t\r" else text


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
