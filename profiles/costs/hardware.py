"""Devices as data: datasheet figures, and the constants that were fitted to measurements."""

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
from magicdec.profiles.files.toml import read_toml
from magicdec.profiles.files.typed import MOST, Amount, Count, Efficiency, Name, Size, decoded

UNFITTED = "defaults, not fitted to anything"


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or one CPU with all its cores. Figures of the data sheet."""

    name: Name
    memory_bytes: Size
    bandwidth: Size  # bytes/s
    flops: Size  # dense FLOP/s in the dtype of the weights (bf16 on GPUs, fp32 on CPUs)
    source: str = ""
    link: Size = math.inf  # bytes/s to the other devices, one direction; inf: not counted


@dataclass(frozen=True, slots=True)
class Constants:
    """What a pass reaches of the data sheet, and what it costs besides. Fitted, see fitting.py.

    Efficiencies lie in (0, 1], seconds are 0 or more. No hardware has more than six of its own:
    where attention is never bound by arithmetic (GPUs) its efficiency stays at the default and a
    pass as a whole costs nothing; a single device has no link.
    """

    launch_s: Amount = 0.0  # a pass, whatever its size
    layer_s: Amount = 0.0  # a layer: launching kernels, and waiting for the other devices
    step_s: Amount = 0.0  # a speculative step besides its passes: acceptance, bookkeeping
    # A row, layer and 1,000 hidden units of a draft step on a compact cache: appending, evicting,
    # rotating the window's keys anew.
    compact_s: Amount = 0.0
    bandwidth_efficiency: Efficiency = 0.85
    gemm_efficiency: Efficiency = 0.6
    attention_efficiency: Efficiency = 0.5
    link_efficiency: Efficiency = 0.3
    # How sharply a pass turns from bound by reading to bound by arithmetic, see roofline.py.
    overlap: Annotated[float, Meta(ge=1, le=MOST)] = 1.5


@dataclass(frozen=True, slots=True)
class Hardware:
    """`count` devices that share a model by tensor parallelism."""

    device: Device
    count: Count = 1
    constants: Constants = field(default_factory=Constants)
    # Constants of draft passes whose weights have another dtype, say "int8".
    by_weights: Mapping[str, Constants] = field(default_factory=dict)
    provenance: str = UNFITTED

    @property
    def label(self) -> str:
        return self.device.name if self.count == 1 else f"{self.count}×{self.device.name}"


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
