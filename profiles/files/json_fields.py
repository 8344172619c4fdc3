"""Reads JSON objects that nobody vouches for: every value has a type, a range and a length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import NAME, clean, shown

LIST = 10_000
COUNT = 2**53  # what JSON readers agree on
SECONDS = 1e9
INSTANT = 1e-9  # seconds

T = TypeVar("T")


class Fields:
    """An object's members, read by name. Raises ConfigError that says where and what.

    A member that is missing counts as null. Members nobody asks for are skipped: a later
    version may have added them.
    """

    def __init__(self, value: object, where: str) -> None:
        self._where = where
        if not isinstance(value, dict):
            raise self._wrong("", "an object", value)
        self._members: Mapping[str, Any] = value

    def integer(self, name: str, low: int = 0, high: int = COUNT) -> int:
        return self._integer(name, self._members.get(name), low, high)

    def number(self, name: str, low: float = 0.0, high: float = SECONDS) -> float:
        return self._number(name, self._members.get(name), low, high)

    def seconds(self, name: str) -> float:
        """0, or long enough for a clock to see: so that rates stay finite."""
        value = self.number(name)
        if 0 < value < INSTANT:
            raise self._wrong(name, f"0 or at least {INSTANT:g}", value)
        return value

    def text(self, name: str, limit: int = NAME) -> str:
        return self._text(name, self._members.get(name), limit)

    def choice(self, name: str, *known: str) -> str:
        value = self._members.get(name)
        if value not in known:
            raise self._wrong(name, " or ".join(known), value)
        return str(value)

    def truth(self, name: str) -> bool:
        value = self._members.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def maybe(self, name: str, read: Callable[[str], T]) -> T | None:
        """`read(name)`, or None where the member is null."""
        return None if self._members.get(name) is None else read(name)

    def inner(self, name: str) -> Fields:
        return Fields(self._members.get(name), f"{self._where}.{name}")

    def integers(self, name: str, most: int = LIST, low: int = 0) -> tuple[int, ...]:
        return tuple(self._integer(name, v, low, COUNT) for v in self._list(name, most))

    def numbers(self, name: str, most: int = LIST) -> tuple[float, ...]:
        return tuple(self._number(name, v, 0.0, SECONDS) for v in self._list(name, most))

    def texts(self, name: str, most: int = LIST) -> tuple[str, ...]:
        return tuple(self._text(name, v, NAME) for v in self._list(name, most))

    def objects(self, name: str, most: int = LIST) -> Iterable[Fields]:
        for index, value in enumerate(self._list(name, most)):
            yield Fields(value, f"{self._where}.{name}[{index}]")

    def scalars(self, name: str, most: int = 64) -> dict[str, str | int | float | bool | None]:
        """A flat object of simple values."""
        value = self._members.get(name)
        if not isinstance(value, dict) or len(value) > most:
            raise self._wrong(name, f"an object of at most {most} members", value)
        return {
            clean(str(key)): self._scalar(f"{name}.{clean(key)}", v) for key, v in value.items()
        }

    def refuse(self, why: str) -> ConfigError:
        return ConfigError(f"{self._where}: {why}")

    def _scalar(self, name: str, value: object) -> str | int | float | bool | None:
        match value:
            case None | bool():
                return value
            case int():
                return self._integer(name, value, -COUNT, COUNT)
            case float():
                return self._number(name, value, -1e300, 1e300)
            case str():
                return clean(value)
        raise self._wrong(name, "a simple value", value)

    def _list(self, name: str, most: int) -> list[Any]:
        value = self._members.get(name)
        if not isinstance(value, list) or len(value) > most:
            raise self._wrong(name, f"a list of at most {most:,} items", value)
        return value

    def _integer(self, name: str, value: object, low: int, high: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(name, f"an integer in {low}..{high}", value)
        return value

    def _number(self, name: str, value: object, low: float, high: float) -> float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        # An int is compared exactly, however long it is; NaN fails every comparison.
        if not isinstance(value, int | float) or not fits or not low <= value <= high:
            raise self._wrong(name, f"a number in {low:g}..{high:g}", value)
        return float(value)

    def _text(self, name: str, value: object, limit: int) -> str:
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return clean(value, limit)

    def _wrong(self, name: str, wanted: str, value: object) -> ConfigError:
        place = f"{self._where}.{name}" if name else self._where
        return ConfigError(f"{place} must be {wanted}, got {shown(value)}")
