"""A sweep in a TOML file: documents, output, repeat, and any setting; see examples/sweep.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magicdec.cli.grids import grid_values
from magicdec.cli.knobs import KNOBS
from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import brief, shown
from magicdec.profiles.costs.strict_toml import read_toml


@dataclass(frozen=True, slots=True)
class SweepFile:
    """flags: settings as the command line would give them."""

    documents: tuple[str, ...] = ()
    output: str | None = None
    repeat: int | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)


def read_sweep_file(path: Path, grids: Sequence[str], worded: Sequence[str] = ()) -> SweepFile:
    """worded: grids that also take the words of their settings.

    Raises ConfigError that names the file and the key.
    """
    data = read_toml(path, pipe=True)
    documents = data.pop("documents", [])
    output, repeat = data.pop("output", None), data.pop("repeat", None)
    if not (isinstance(documents, list) and all(isinstance(d, str) for d in documents)):
        raise ConfigError(f"{path}: documents must be a list of texts, got {brief(documents)}")
    if output is not None and not isinstance(output, str):
        raise ConfigError(f"{path}: output must be a file name, got {brief(output)}")
    if repeat is not None and not (type(repeat) is int and repeat >= 1):
        raise ConfigError(f"{path}: repeat must be a number from 1, got {brief(repeat)}")
    knobs = {knob.key: knob for knob in KNOBS}
    flags: dict[str, Any] = {}
    for key, value in data.items():
        if key not in knobs:
            raise ConfigError(
                f"{path}: unknown key {shown(key)}; it takes documents, output, repeat and the "
                "settings of `magicdec config show`"
            )
        knob, where = knobs[key], f"{path}: {key}"
        if knob.name in grids:
            flags[knob.name] = _grid(knob.name, value, where, knob.name in worded)
        else:
            flags[knob.name] = _as_flag(knob.check(value, where))
    return SweepFile(tuple(documents), output, repeat, flags)


def _grid(name: str, value: object, where: str, words: bool) -> str:
    """A grid as text, a number, or a list of either."""
    items = value if isinstance(value, list) else [value]
    if not items or not all(type(item) in (str, int, float) for item in items):
        raise ConfigError(f"{where} must be a value, a list or a grid as text, got {brief(value)}")
    text = ",".join(item if isinstance(item, str) else brief(item) for item in items)
    grid_values(name, text, where, words=words)
    return text


def _as_flag(value: object) -> object:
    match value:
        case bool():
            return value
        case tuple():
            return list(value)
        case dict():
            return [f"{key}={item}" for key, item in value.items()]
    return str(value)
