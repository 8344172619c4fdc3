"""Hardware as TOML: data sheets, fitted constants, and where these come from."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.strict_toml import Fields, read_toml

CONSTANTS = tuple(field.name for field in dataclasses.fields(Constants))
SHEET = {"memory_bytes": "bytes", "bandwidth": "bytes/s", "flops": "FLOP/s"}
KEYS = {
    "name", "aliases", *SHEET, "link", "source", "provenance", "constants", "constants_of",
    "by_weights",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One [[hardware]] table: a single device of its kind."""

    hardware: Hardware
    aliases: tuple[str, ...] = ()
    constants_of: str | None = None  # the device that lends its constants to this unmeasured one


def read_hardware(path: Path) -> list[Entry]:
    """The [[hardware]] tables of `path`. Raises ConfigError."""
    top = Fields(str(path), read_toml(path)).only({"hardware"})
    return [_entry(table.only(KEYS)) for table in top.tables("hardware")]


def write_hardware(entries: Iterable[Hardware | Entry]) -> str:
    """The text of a file that read_hardware reads back. Counts of devices are no part of it."""
    tables = (e if isinstance(e, Entry) else Entry(e) for e in entries)
    return "\n".join("\n".join(_lines(entry)) + "\n" for entry in tables)


def _entry(table: Fields) -> Entry:
    sheet = {key: table.number(key, low=0, above=True) for key in SHEET}
    link = table.number("link", low=0, above=True) if "link" in table.data else math.inf
    device = Device(name=table.text("name"), **sheet, link=link, source=table.text("source", ""))
    lender = table.text("constants_of") if "constants_of" in table.data else None
    if lender and ("constants" in table.data or "by_weights" in table.data):
        raise ConfigError(f"{table.where}: has both 'constants_of' and constants; keep one")
    by_weights = table.table("by_weights")
    hardware = Hardware(
        device,
        constants=_constants(table.table("constants")),
        by_weights={kind: _constants(by_weights.table(kind)) for kind in by_weights.data},
        provenance=table.text("provenance", Hardware(device).provenance),
    )
    return Entry(hardware, table.texts("aliases"), lender)


def _constants(table: Fields) -> Constants:
    table.only(set(CONSTANTS))
    values = {}
    for name in table.data:
        if name.endswith("_efficiency"):
            values[name] = table.number(name, low=0, high=1, above=True)
        else:
            values[name] = table.number(name, low=1 if name == "overlap" else 0)
    return Constants(**values)


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
