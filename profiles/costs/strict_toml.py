"""Reads TOML that must have exactly the keys it may have, each of its type and range."""

from __future__ import annotations

import difflib
import math
import os
import tomllib
import unicodedata
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magicdec.engine.bounded import read_bounded
from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import brief, plain_words, shown

MOST_BYTES = 2**20
MOST_DOTS = 2_000  # in a line: a dotted key of a megabyte takes the parser gigabytes
# What numbers may be, so that no product or power of them overflows.
LEAST, MOST, MOST_COUNT = 1e-15, 1e20, 10**9


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


@dataclass(frozen=True, slots=True)
class Fields:
    """One table of a file. Every getter raises ConfigError naming the file, key and value."""

    where: str
    data: Mapping[str, Any]

    def only(self, known: Set[str]) -> Fields:
        """Refuses keys outside `known`: a misspelt key must not pass as absent."""
        for key in self.data:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
                )
                raise ConfigError(f"{self.where}: unknown key {shown(key)}; {hint}")
        return self

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self._bad(key, value, "a text")
        return self._harmless(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._bad(key, value, "a list of texts")
        return tuple(self._harmless(key, item) for item in value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, value, "true or false")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._bad(key, value, "a whole number, 1 or more")
        if value > MOST_COUNT:
            raise self._bad(key, value, f"at most {MOST_COUNT:,}")
        return value

    def whole(self, key: str, *, low: int, high: int) -> int:
        value = self._get(key, None)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._bad(key, value, f"a whole number in {low}..{high}")
        return value

    def number(
        self, key: str, *, low: float, high: float = math.inf, above: bool = False,
        default: float | None = None,
    ) -> float:  # fmt: skip
        """A number in [low, high], 0 or LEAST..MOST in size; `above`: greater than low."""
        value = self._get(key, default)
        asked = f"a number {'above' if above else 'from'} {low:g}"
        asked += f" to {high:g}" if math.isfinite(high) else ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(key, value, asked)
        if not low <= value <= high or (above and value == low) or value == math.inf:
            raise self._bad(key, value, asked)
        if value and not LEAST <= abs(value) <= MOST:
            raise self._bad(key, value, f"between {LEAST:g} and {MOST:g}")
        return float(value)

    def table(self, key: str) -> Fields:
        """A sub-table; an absent one is empty."""
        return self._sub(f"{self.where}: {key}", self._get(key, {}))

    def tables(self, key: str) -> list[Fields]:
        """An array of tables."""
        value = self._get(key, None)
        if not isinstance(value, list) or not value:
            raise self._bad(key, value, f"one [[{key}]] table or more")
        return [self._sub(f"{self.where}: {key} {i}", item) for i, item in enumerate(value, 1)]

    def _sub(self, where: str, value: object) -> Fields:
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: must be a table, got {brief(value)}")
        return Fields(where, value)

    def _get(self, key: str, default: object) -> Any:
        value = self.data.get(key, default)
        if value is None:
            raise ConfigError(f"{self.where}: {key!r} is missing")
        return value

    def _harmless(self, key: str, value: str) -> str:
        """Names are printed: they must stay on their line and leave the terminal alone."""
        if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in value):
            raise self._bad(key, value, "a text of one line without control characters")
        return value

    def _bad(self, key: str, value: object, asked: str) -> ConfigError:
        got = shown(value) if isinstance(value, str | int | float) else brief(value)
        return ConfigError(f"{self.where}: {key!r} must be {asked}, got {got}")
