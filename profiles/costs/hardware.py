"""Devices as data: datasheet figures, and the constants that were fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, or one CPU with all its cores. Figures of the data sheet."""

    name: str
    memory_bytes: float
    bandwidth: float  # bytes/s
    flops: float  # dense FLOP/s in the dtype of the weights (bf16 on GPUs, fp32 on CPUs)
    source: str = ""


@dataclass(frozen=True, slots=True)
class Constants:
    """What a pass reaches of the data sheet, and what it costs besides. Fitted, see fitting.py.

    At most six per hardware; efficiencies lie in (0, 1].
    """

    launch_s: float = 0.0  # a pass, whatever its size
    layer_s: float = 0.0  # a layer: kernel launches, and the all-reduces of tensor parallelism
    token_layer_s: float = 0.0  # a token of a row and layer
    bandwidth_efficiency: float = 0.8
    gemm_efficiency: float = 0.6


@dataclass(frozen=True, slots=True)
class Hardware:
    """`count` devices that share a model by tensor parallelism."""

    device: Device
    count: int = 1
    constants: Constants = field(default_factory=Constants)
    # Constants of draft passes whose weights have another dtype, say "int8".
    by_weights: Mapping[str, Constants] = field(default_factory=dict)
    provenance: str = "defaults, not fitted to anything"

    @property
    def label(self) -> str:
        return self.device.name if self.count == 1 else f"{self.count}×{self.device.name}"
