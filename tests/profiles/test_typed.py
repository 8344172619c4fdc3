"""What nobody vouches for is decoded into what it must be, or refused in one clear line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from magicdec.engine.errors import ConfigError
from magicdec.profiles.files.typed import Amount, Count, Efficiency, Name, Size, decoded


@dataclass(frozen=True, slots=True)
class Inner:
    share: Efficiency = 0.5
    seconds: Amount = 0.0


@dataclass(frozen=True, slots=True)
class Outer:
    name: Name
    size: Size = math.inf
    count: Count = 1
    flag: bool = False
    items: tuple[Inner, ...] = ()
    kinds: Mapping[str, Inner] = field(default_factory=dict)
    other: Inner | None = None


def test_it_reads_what_fits():
    data = {"name": "a", "size": 3, "items": [{"share": 1}, {}], "kinds": {"int8": {"seconds": 2}}}
    assert decoded(Outer, data, "f") == Outer(
        "a", 3.0, items=(Inner(1.0), Inner()), kinds={"int8": Inner(seconds=2.0)}
    )
    assert decoded(Outer, {"name": "a", "more": [[]]}, "f", lenient=True) == Outer("a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "  "}, "f: 'name' must be a text that is not empty, got '  '"),
        ({"name": 3}, "f: 'name' must be a text, got 3"),
        ({"name": "a\x1b[2J"}, "'name' must be a text of one line without control characters"),
        ({"size": math.nan}, "'size' must be a number above 0, got nan"),
        ({"size": math.inf}, "'size' must be a number up to 1e+20, got inf"),
        ({"size": 0}, "'size' must be a number above 0, got 0"),
        ({"size": 1e-300}, "'size' must be 0, or from 1e-15 to 1e+20 in size, got 1e-300"),
        ({"size": 10**5000}, ", got an integer of 16610 bits"),
        ({"size": True}, "'size' must be a number, got true"),
        ({"count": True}, "'count' must be a whole number, got true"),
        ({"count": 1.0}, "'count' must be a whole number, got 1.0"),
        ({"count": 10**5000}, "'count' must be a whole number up to 1,000,000,000, got an integer"),
        ({"flag": 1}, "'flag' must be true or false, got 1"),
        ({"items": {}}, "'items' must be one [[items]] table or more, got {}"),
        ({"items": [3]}, "f: 'items 1' must be a table, got 3"),
        ({"items": [{}, {"share": 1.5}]}, "f: items 2: 'share' must be a number up to 1, got 1.5"),
        ({"items": [{"sharp": 1}]}, "f: items 1: unknown key 'sharp'; did you mean 'share'?"),
        ({"kinds": {"a.b": {"share": 0}}}, "f: kinds: a.b: 'share' must be a number above 0"),
        ({"other": {"zzz": 1}}, "f: other: unknown key 'zzz'; known: seconds, share"),
        ({"kinds": {"x": {"a": []}}}, "f: kinds: x: unknown key 'a'"),
    ],
)
def test_what_does_not_fit_is_one_line_with_key_value_and_what_belongs(
    change: dict[str, Any], said: str
):
    with pytest.raises(ConfigError) as error:
        decoded(Outer, {"name": "a"} | change, "f")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_member_that_must_be_there_is_named():
    with pytest.raises(ConfigError, match=r"^f: 'name' is missing$"):
        decoded(Outer, {}, "f")
    with pytest.raises(ConfigError, match=r"^f: items 1: 'seconds' is missing$"):
        decoded(Outer, {"name": "a", "items": [{"share": 1}]}, "f", whole={Inner})
    with pytest.raises(ConfigError, match=r"^f must be a table, got 3$"):
        decoded(Outer, 3, "f")
