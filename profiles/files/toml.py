"""Reads TOML that anybody may have written: bounded, and refused in one line."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import plain_words, read_bounded

MOST_BYTES = 2**20
MOST_DOTS = 2_000  # in a line: a dotted key of a megabyte takes the parser gigabytes


def read_toml(path: Path, *, pipe: bool = False) -> dict[str, Any]:
    """pipe: it may be one, such as <(command). Raises ConfigError when `path` cannot be read or is
    no TOML."""
    if os.path.exists(path) and not (os.path.isfile(path) or (pipe and path.is_fifo())):
        found = "a folder" if os.path.isdir(path) else "no file"
        raise ConfigError(f"{path}: is {found}; give a TOML file")
    try:
        text = read_bounded(path, MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not valid TOML: byte {error.start} is no text in UTF-8; give a TOML file"
        ) from error
    return parse_toml(str(path), text)


def parse_toml(where: str, text: str) -> dict[str, Any]:
    """Raises ConfigError naming `where` when `text` is no TOML."""
    try:
        if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
            raise ValueError(f"a line has more than {MOST_DOTS:,} dots")
        return tomllib.loads(text.removeprefix("\ufeff"))  # some editors begin with a mark
    except RecursionError:
        raise ConfigError(f"{where}: not valid TOML: nested too deeply") from None
    except ValueError as error:  # syntax, or an integer of thousands of digits
        reason = " ".join(plain_words(error).split())
        raise ConfigError(f"{where}: not valid TOML: {reason}") from error
