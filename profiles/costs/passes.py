"""The time of one forward pass: a roofline with overheads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.shapes import ModelShape

Floats = NDArray[np.float64]
BOUNDS = ("weights", "KV", "compute", "overhead")


@dataclass(frozen=True, slots=True)
class PassCost:
    """The parts of a pass, seconds, arrays of one shape. `total` is not always their sum."""

    weights: Floats  # reading the weights
    gemm: Floats  # multiplying with them
    kv: Floats  # reading K and V
    attention: Floats  # multiplying with them
    overhead: Floats
    total: Floats

    @property
    def bound(self) -> NDArray[np.int64]:
        """Index into BOUNDS of what takes most."""
        parts = (self.weights, self.kv, self.gemm + self.attention, self.overhead)
        return np.argmax(np.stack(parts), axis=0)


def forward(
    model: ModelShape,
    hardware: Hardware,
    *,
    rows: ArrayLike,
    entries: ArrayLike,
    new: ArrayLike,
    weights: str = "same",
    weight_bytes: float = 2,
    kv_bytes: float = 2,
) -> PassCost:
    """One pass of `rows` rows with `new` tokens each, that read `entries` cached tokens each.

    `weights` names the constants ("same", or a key of hardware.by_weights), `weight_bytes` and
    `kv_bytes` are bytes per element.
    """
    b, s, q = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (rows, entries, new)))
    c = hardware.by_weights.get(weights, hardware.constants)
    bandwidth = hardware.device.bandwidth * hardware.count * c.bandwidth_efficiency
    flops = hardware.device.flops * hardware.count * c.gemm_efficiency
    read_weights = np.broadcast_to(model.streamed * weight_bytes / bandwidth, b.shape)
    gemm = 2 * model.streamed * b * q / flops
    kv = b * s * model.kv_bytes_per_token(kv_bytes) / bandwidth
    attention = 4 * model.layers * model.heads * model.head_dim * b * s * q / flops
    overhead = c.launch_s + model.layers * (c.layer_s + b * q * c.token_layer_s)
    total = overhead + np.maximum(read_weights, gemm) + np.maximum(kv, attention)
    return PassCost(read_weights, gemm, kv, attention, overhead, total)
