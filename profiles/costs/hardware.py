"""Devices as data: datasheet figures, and the constants that were fitted to measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from magicdec.profiles.storage.typed import MOST, Amount, Count, Efficiency, Name, Size

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
    # How sharply a pass turns from bound by reading to bound by arithmetic, see passes.py.
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
