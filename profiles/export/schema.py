"""What an engine declares with pydantic, declared again: the same library reads the same values.

So "3", 3.0 and true are integers here wherever they are to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from magicdec.engine.untrusted import clean, shown
from magicdec.profiles.export.settings import wrong

MANY = 8  # names that a message still lists


class Strict(BaseModel):
    """Refuses members that it does not know."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


Found = TypeVar("Found", bound=Strict)


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """For `AfterValidator`: raises ValueError for a name that is none of these."""

    def known(name: str) -> str:
        if name not in names:
            listed = f"one of {', '.join(names)}" if len(names) <= MANY else "a name it knows"
            raise ValueError(f"must be {listed}")
        return name

    return known


def read_members(
    kind: type[Found], data: Any, engine: str, renamed: Mapping[str, str] | None = None
) -> Found:
    """Raises ConfigError, one line, for the first thing that the engine would refuse.

    `renamed`: what a member of other releases is called now.
    """
    if not isinstance(data, dict):
        raise wrong(engine, "the configuration must be an object")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        now = (renamed or {}).get(place)
        hint = f"; it is called {now}" if now else ""
        raise wrong(engine, f"unknown member {shown(place)}{hint}")
    reason = clean(first["msg"].removeprefix("Value error, ")).replace("Input should be", "must be")
    if not place:
        raise wrong(engine, reason)
    if first["type"] == "missing":
        raise wrong(engine, f"{clean(place)} is missing")
    raise wrong(engine, f"{clean(place)}: {reason}, got {shown(first['input'])}")
