"""Hardware as a TOML file: data sheet, fitted constants, and where they come from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.strict_toml import Fields, read_toml

CONSTANTS = tuple(field.name for field in dataclasses.fields(Constants))
KEYS = {
    "name", "aliases", "memory_bytes", "bandwidth", "flops", "source", "provenance", "constants",
    "by_weights",
}  # fmt: skip


def read_hardware(path: Path) -> tuple[Hardware, tuple[str, ...]]:
    """One device of the kind that `path` describes, and its other names. Raises ConfigError."""
    top = Fields(str(path), read_toml(path)).only(KEYS)
    device = Device(
        name=top.text("name"),
        memory_bytes=top.number("memory_bytes", low=0, above=True),
        bandwidth=top.number("bandwidth", low=0, above=True),
        flops=top.number("flops", low=0, above=True),
        source=top.text("source", ""),
    )
    by_weights = top.table("by_weights")
    hardware = Hardware(
        device,
        constants=_constants(top.table("constants")),
        by_weights={kind: _constants(by_weights.table(kind)) for kind in by_weights.data},
        provenance=top.text("provenance", "no constants given: defaults, not fitted"),
    )
    return hardware, top.texts("aliases")


def write_hardware(hardware: Hardware, aliases: tuple[str, ...] = ()) -> str:
    """The text of a file that read_hardware reads back. The count is not part of it."""
    device = hardware.device
    lines = [f"name = {_quoted(device.name)}"]
    if aliases:
        lines.append(f"aliases = [{', '.join(map(_quoted, aliases))}]")
    lines += [
        f"memory_bytes = {device.memory_bytes:.6g}",
        f"bandwidth = {device.bandwidth:.6g}  # bytes/s",
        f"flops = {device.flops:.6g}  # FLOP/s",
        f"source = {_quoted(device.source)}",
        f"provenance = {_quoted(hardware.provenance)}",
        *_table("constants", hardware.constants),
    ]
    for kind, constants in hardware.by_weights.items():
        lines += _table(f"by_weights.{_quoted(kind)}", constants)
    return "\n".join(lines) + "\n"


def _constants(table: Fields) -> Constants:
    table.only(set(CONSTANTS))
    values = {}
    for name in table.data:
        if name.endswith("_efficiency"):
            values[name] = table.number(name, low=0, high=1, above=True)
        else:
            values[name] = table.number(name, low=0)
    return Constants(**values)


def _table(name: str, constants: Constants) -> list[str]:
    values = dataclasses.asdict(constants)
    return ["", f"[{name}]", *(f"{key} = {value:.4g}" for key, value in values.items())]


def _quoted(text: str) -> str:
    """A TOML basic string: JSON's escapes are among TOML's."""
    return json.dumps(text, ensure_ascii=False)
