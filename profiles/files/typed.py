"""Data of JSON or TOML as an annotated dataclass, by msgspec; misfits are one clear line."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import typing
import unicodedata
from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import brief, clean, shown

# What numbers may be, so that no product or power of them overflows.
LEAST, MOST, MOST_COUNT = 1e-15, 1e20, 10**9

Count = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
Name = Annotated[str, Meta(pattern=r"\S")]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Size = Annotated[float, Meta(gt=0, le=MOST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Efficiency = Annotated[float, Meta(gt=0, le=1)]

#: What msgspec expects, in words.
_WORDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false",
    "array": "a list", "object": "a table", "Number out of range": "a number that can be counted",
    r"a text matching regex '\\S'": "a text that is not empty",
}  # fmt: skip

T = TypeVar("T")
Parts = tuple[str | int, ...]  # names of members, and places in lists


def decoded(
    kind: type[T], data: object, where: str, *, whole: Collection[type] = (), lenient: bool = False
) -> T:
    """`data` as a `kind`: every value of its type and range, every member one that is known.

    whole: classes whose members must all be there, whatever their defaults. lenient: unknown
    members are skipped. Raises ConfigError naming `where`, the key, its value and what belongs.
    """
    if not lenient:
        _check_members(kind, data, where, (), whole)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _told(str(error), data, where) from None


def _check_members(
    hint: Any, value: object, where: str, at: Parts, whole: Collection[type]
) -> None:
    """What msgspec lets pass: members nobody knows, control characters, numbers next to 0."""
    arguments = typing.get_args(hint)
    match value:
        # Names are printed: they must stay on their line and leave the terminal alone.
        case str() if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in value):
            raise _wrong(where, at, "a text of one line without control characters", value)
        case float() if 0 < abs(value) < LEAST:
            raise _wrong(where, at, f"0, or from {LEAST:g} to {MOST:g} in size", value)
        case list() if arguments:
            for i, item in enumerate(value):
                _check_members(arguments[0], item, where, (*at, i), whole)
        case dict() if typing.get_origin(hint) is Mapping:
            for key, item in value.items():  # here, since msgspec does not say which it was
                decoded(arguments[1], item, _place(where, (*at, clean(key))), whole=whole)
        case dict():
            kind: Any = next(filter(dataclasses.is_dataclass, (hint, *arguments)), None)
            if kind is not None:
                hints = _hints(kind)
                if missing := [name for name in hints if kind in whole and name not in value]:
                    raise ConfigError(f"{_place(where, at)}: {missing[0]!r} is missing")
                for key, item in value.items():
                    if key not in hints:
                        raise _unknown(_place(where, at), key, hints)
                    _check_members(hints[key], item, where, (*at, key), whole)


_hints = functools.cache(typing.get_type_hints)  # of 10,000 tables of one kind


def _unknown(place: str, key: str, known: Collection[str]) -> ConfigError:
    """A misspelt key must not pass as absent."""
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    return ConfigError(f"{place}: unknown key {shown(key)}; {hint}")


def _told(said: str, data: Any, where: str) -> ConfigError:
    """What msgspec said, as "Expected `int` >= 1 - at `$.model[0].layers`"."""
    said, _, path = said.partition(" - at `$")
    at: Parts = tuple(
        int(place) if place else name for name, place in re.findall(r"\.(\w+)|\[(\d+)\]", path)
    )
    if missing := re.match(r"Object missing required field `(\w+)`", said):
        return ConfigError(f"{_place(where, at)}: {missing[1]!r} is missing")
    for part in at:
        data = data[part]
    asked = said
    if expected := re.match(r"Expected `([^`]+)`(.*?)(, got `.*`)?$", said):
        asked = " or ".join(_WORDS.get(k, k) for k in expected[1].split(" | "))
        asked += re.sub(r" (>=|<=|>|<) (\S+)$", _bound, expected[2])
    if asked == _WORDS["array"] and isinstance(data, dict) and at:
        asked = f"one [[{at[-1]}]] table or more"
    return _wrong(where, at, _WORDS.get(asked, asked), data)


def _bound(found: re.Match[str]) -> str:
    bound = f"{float(found[2]):,.15g}"
    return {">=": f" from {bound}", "<=": f" up to {bound}", ">": f" above {bound}"}[found[1]]


def _wrong(where: str, at: Parts, asked: str, value: object) -> ConfigError:
    *above, last = _names(at) or ("",)
    place = ": ".join([where, *above]) + (f": {last!r}" if last else "")
    short = isinstance(value, list | dict) and len(value) < 10
    got = brief(value) if short else shown(value)
    return ConfigError(f"{place} must be {asked}, got {got}")


def _place(where: str, at: Parts) -> str:
    return ": ".join([where, *_names(at)])


def _names(at: Parts) -> list[str]:
    """Places in lists count from 1 and stand behind the list's name: `hardware 1`."""
    names: list[str] = []
    for part in at:
        if isinstance(part, int):
            names[-1:] = [f"{names[-1]} {part + 1}" if names else f"{part + 1}"]
        else:
            names.append(part)
    return names
