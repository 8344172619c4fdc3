"""The time of one forward pass: a roofline with overheads.

T = launch + L·layer + exchange + compact + (weights ⊕ GEMM) + (KV ⊕ attention)

- launch, layer: what a pass and each of its L layers cost whatever they compute. With tensor
  parallelism this is most of a small pass: about 0.1 ms a layer on H100s.
- exchange: bytes that n devices swap per token over their links: two all-reduces of the hidden
  state a layer in 2 bytes, which every byte passes twice, and one gathering of fp32 logits.
- compact: what a draft step does for each row to keep its selected entries in one place.
- weights, KV: bytes read from memory, at the fitted share of the datasheet bandwidth.
- GEMM, attention: FLOPs, each at its own fitted share of the datasheet rate.
- a ⊕ b = (a^p + b^p)^(1/p): reading overlaps with arithmetic, but not fully. p = 1.5 fits GPUs as
  well as any value does; a CPU that is calibrated has a p of its own.

Weights are split over all n devices, KV heads only as whole heads: 4 heads on 8 devices keep 4
devices' worth of bandwidth. The prices rise with B, S, K, q and bytes by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from magicdec.profiles.costs.hardware import Constants, Hardware
from magicdec.profiles.costs.model import ModelShape

Floats = NDArray[np.float64]
BOUNDS = ("weights", "KV", "compute", "overhead")
ACTIVATION_BYTES, LOGIT_BYTES = 2, 4


@dataclass(frozen=True, slots=True)
class PassCost:
    """The parts of a pass, seconds, arrays of one shape. `total` is not their sum: they overlap."""

    weights: Floats  # reading the weights
    gemm: Floats  # multiplying with them
    kv: Floats  # reading K and V
    attention: Floats  # multiplying with them
    overhead: Floats  # launches, waits and exchanges between devices
    total: Floats

    @property
    def bound(self) -> NDArray[np.int64]:
        """Index into BOUNDS of what takes most."""
        parts = (self.weights, self.kv, self.gemm + self.attention, self.overhead)
        return np.asarray(np.argmax(np.stack(parts), axis=0), np.int64)


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
    compact: bool = False,
) -> PassCost:
    """One pass of `rows` rows with `new` tokens each, that read `entries` cached tokens each.

    `weights` names the constants ("same", or a key of hardware.by_weights), `weight_bytes` and
    `kv_bytes` are bytes per element, `compact` says that the entries are a selection kept apart.
    """
    b, s, q = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (rows, entries, new)))
    c, device = hardware.by_weights.get(weights, hardware.constants), hardware.device
    bandwidth = device.bandwidth * c.bandwidth_efficiency
    sharing = model.kv_heads / -(-model.kv_heads // hardware.count)  # devices' worth of KV heads
    read_weights = np.full(b.shape, model.streamed * weight_bytes / (bandwidth * hardware.count))
    gemm = 2 * model.streamed * b * q / (device.flops * hardware.count * c.gemm_efficiency)
    kv = b * s * model.kv_bytes_per_token(kv_bytes) / (bandwidth * sharing)
    attention = 4 * model.layers * model.heads * model.head_dim * b * s * q
    attention = attention / (device.flops * sharing * c.attention_efficiency)
    overhead = c.launch_s + model.layers * c.layer_s + b * q * _exchange(model, hardware, c)
    if compact:
        overhead = overhead + b * model.layers * model.hidden / 1000 * c.compact_s
    total = overhead + _overlapped(read_weights, gemm, c.overlap)
    total = total + _overlapped(kv, attention, c.overlap)
    return PassCost(read_weights, gemm, kv, attention, overhead, total)


def _exchange(model: ModelShape, hardware: Hardware, constants: Constants) -> float:
    """Seconds per token that tensor parallelism spends on its links."""
    n = hardware.count
    reduced = 2 * 2 * model.layers * model.hidden * ACTIVATION_BYTES
    gathered = model.vocab * LOGIT_BYTES
    link = hardware.device.link * constants.link_efficiency
    return (reduced + gathered) * (n - 1) / n / link


def _overlapped(reading: Floats, arithmetic: Floats, p: float) -> Floats:
    """(a^p + b^p)^(1/p)."""
    total: Floats = (reading**p + arithmetic**p) ** (1 / p)
    return total
