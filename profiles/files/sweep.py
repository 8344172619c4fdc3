"""The sweep grammar: `1,4,8`, `1-6`, `1024-8192*2`, `1000-4000+500`, and mixtures of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction

from magicdec.engine.errors import ConfigError

MOST_VALUES = 10_000
GRAMMAR = "write 8, a list 1,4,8 or a range 1-6, 1000-4000+500, 1024-8192*2"
THOUSAND = {"": 1, "k": 1_000, "K": 1_000}
ITEM = re.compile(
    r"(?P<first>\d+[kK]?)"
    r"(?:-(?P<last>\d+[kK]?)(?:(?P<kind>[+*])(?P<step>\d+(?:\.\d+)?[kK]?))?)?"
)


def sweep(text: str, name: str, *, low: int, high: int, most: int = MOST_VALUES) -> tuple[int, ...]:
    """The integers that `text` names, in its order, each once.

    Items are separated by commas: a number (`32k` is 32,000); `a-b` counts up by 1, `a-b+c` by c,
    `a-b*c` multiplies by c (which may be 1.5; values are rounded). The end belongs to a range when
    it is hit. Raises ConfigError, which begins with `name`, for anything else, for values outside
    low..high and for more than `most` values.
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        item = "".join(part.split())
        if not item:
            raise ConfigError(f"{name} {text!r} has an empty item; {GRAMMAR}")
        for value in _values(item, name, low, high, most):
            found[value] = None
        if len(found) > most:
            raise _too_many(name, text, most)
    return tuple(found)


def _values(item: str, name: str, low: int, high: int, most: int) -> Iterator[int]:
    match = ITEM.fullmatch(item)
    if match is None:
        raise ConfigError(f"{name}: {item!r} is not a whole number or a range; {GRAMMAR}")
    first = _bounded(match["first"], name, low, high)
    if match["last"] is None:
        return iter((first,))
    last = _bounded(match["last"], name, low, high)
    if last < first:
        raise ConfigError(
            f"{name}: {item!r} runs backwards; write {match['last']}-{match['first']}"
        )
    step = _number(match["step"] or "1")
    if match["kind"] == "*":
        if first == 0:
            raise ConfigError(f"{name}: {item!r} never leaves 0; begin at 1")
        if step <= 1:
            raise ConfigError(f"{name}: {item!r} never ends; the factor after * must be above 1")
        if math.log(last / first) / math.log(step) >= most:
            raise _too_many(name, item, most)
        return _powers(first, last, step)
    if step < 1 or step.denominator != 1:
        raise ConfigError(f"{name}: {item!r}: the step after + must be a whole number from 1")
    if (last - first) // step >= most:
        raise _too_many(name, item, most)
    return iter(range(first, last + 1, int(step)))


def _powers(first: int, last: int, factor: Fraction) -> Iterator[int]:
    """Exact while the numbers are small, so that 1000-8000*2 hits its end; never drifts."""
    value = Fraction(first)
    while value <= last:
        yield round(value)
        value = (value * factor).limit_denominator(10**12)


def _bounded(text: str, name: str, low: int, high: int) -> int:
    value = int(_number(text)) if len(text) <= 20 else high + 1
    if not low <= value <= high:
        raise ConfigError(f"{name}: {text} is outside {low:,}..{high:,}")
    return value


def _number(text: str) -> Fraction:
    digits = text.rstrip("kK")
    return Fraction(digits) * THOUSAND[text[len(digits) :]]


def _too_many(name: str, text: str, most: int) -> ConfigError:
    return ConfigError(f"{name} {text!r} gives more than {most:,} values; widen its step")
