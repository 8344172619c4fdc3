"""Hardware as TOML: data sheets, fitted constants, and where these come from."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.hardware import UNFITTED, Constants, Device, Hardware
from magicdec.profiles.costs.strict_toml import read_toml
from magicdec.profiles.storage.typed import Name, decoded

SHEET = {"memory_bytes": "bytes", "bandwidth": "bytes/s", "flops": "FLOP/s"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One [[hardware]] table: a single device of its kind."""

    hardware: Hardware
    aliases: tuple[str, ...] = ()
    constants_of: str | None = None  # the device that lends its constants to this unmeasured one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table(Device):
    """An entry as it is written."""

    aliases: tuple[str, ...] = ()
    provenance: str = UNFITTED
    constants: Constants | None = None
    constants_of: Name | None = None
    by_weights: Mapping[str, Constants] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _File:
    hardware: Annotated[tuple[_Table, ...], Meta(min_length=1)]


def read_hardware(path: Path) -> list[Entry]:
    """The [[hardware]] tables of `path`. Raises ConfigError."""
    tables = decoded(_File, read_toml(path), str(path)).hardware
    return [_entry(table, f"{path}: hardware {i}") for i, table in enumerate(tables, 1)]


def write_hardware(entries: Iterable[Hardware | Entry]) -> str:
    """The text of a file that read_hardware reads back. Counts of devices are no part of it."""
    tables = (e if isinstance(e, Entry) else Entry(e) for e in entries)
    return "\n".join("\n".join(_lines(entry)) + "\n" for entry in tables)


def _entry(table: _Table, where: str) -> Entry:
    if table.constants_of and (table.constants or table.by_weights):
        raise ConfigError(f"{where}: has both 'constants_of' and constants; keep one")
    device = Device(*(getattr(table, part.name) for part in dataclasses.fields(Device)))
    hardware = Hardware(
        device,
        constants=table.constants or Constants(),
        by_weights=table.by_weights,
        provenance=table.provenance,
    )
    return Entry(hardware, table.aliases, table.constants_of)


def _lines(entry: Entry) -> list[str]:
    device = entry.hardware.device
    lines = ["[[hardware]]", f"name = {_quoted(device.name)}"]
    if entry.aliases:
        lines.append(f"aliases = [{', '.join(map(_quoted, entry.aliases))}]")
    lines += [f"{key} = {getattr(device, key):.6g}  # {unit}" for key, unit in SHEET.items()]
    if math.isfinite(device.link):
        lines.append(f"link = {device.link:.6g}  # bytes/s, one direction")
    if device.source:
        lines.append(f"source = {_quoted(device.source)}")
    if entry.constants_of:
        return [*lines, f"constants_of = {_quoted(entry.constants_of)}"]
    lines.append(f"provenance = {_quoted(entry.hardware.provenance)}")
    lines += _table("constants", entry.hardware.constants)
    for kind, constants in entry.hardware.by_weights.items():
        lines += _table(f"by_weights.{_quoted(kind)}", constants)
    return lines


def _table(name: str, constants: Constants) -> list[str]:
    """Only what differs from the defaults: that is what was fitted."""
    default = dataclasses.asdict(Constants())
    values = dataclasses.asdict(constants)
    changed = {key: value for key, value in values.items() if value != default[key]}
    return [f"[hardware.{name}]", *(f"{key} = {value:.4g}" for key, value in changed.items())]


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)
