"""Reads TOML that must have exactly the keys it may have, each of its type and range."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ConfigError


def read_toml(path: Path) -> dict[str, Any]:
    """Raises ConfigError when `path` cannot be read or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from error


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
                raise ConfigError(f"{self.where}: unknown key {key!r}; {hint}")
        return self

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self._bad(key, value, "a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._bad(key, value, "a list of texts")
        return tuple(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, value, "true or false")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._bad(key, value, "a whole number, 1 or more")
        return value

    def number(
        self, key: str, *, low: float, high: float = math.inf, above: bool = False,
        default: float | None = None,
    ) -> float:  # fmt: skip
        """A finite number in [low, high]; `above`: greater than low."""
        value = self._get(key, default)
        asked = f"a number {'above' if above else 'from'} {low:g}"
        asked += f" to {high:g}" if math.isfinite(high) else ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(key, value, asked)
        if not (math.isfinite(value) and low <= value <= high) or (above and value == low):
            raise self._bad(key, value, asked)
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
            raise ConfigError(f"{where}: must be a table, got {value!r}")
        return Fields(where, value)

    def _get(self, key: str, default: object) -> Any:
        value = self.data.get(key, default)
        if value is None:
            raise ConfigError(f"{self.where}: {key!r} is missing")
        return value

    def _bad(self, key: str, value: object, asked: str) -> ConfigError:
        return ConfigError(f"{self.where}: {key!r} must be {asked}, got {value!r}")
