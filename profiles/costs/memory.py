"""What a decoding mode keeps in memory, and the largest batch that leaves it room.

Counted: weights, K and V of every row. Activations, workspace and what the allocator loses to
fragments are not known from sizes; a stated share of the memory is kept free for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.roofline import Floats
from magicdec.profiles.costs.speculation import Drafting

RESERVE = 0.1  # of the devices' memory


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: the fullest device's, times the devices. Per-row sizes are arrays over S and γ."""

    weights: float
    draft_weights: float
    full_kv_row: Floats
    draft_kv_row: Floats

    def total(self, rows: ArrayLike) -> Floats:
        """Bytes for `rows` rows."""
        row = self.full_kv_row + self.draft_kv_row
        return self.weights + self.draft_weights + np.asarray(rows, np.float64) * row

    def largest_batch(self, usable: float) -> Floats:
        """Most rows whose total is within `usable` bytes; 0 when the weights leave no room."""
        left = usable - self.weights - self.draft_weights
        return np.maximum(np.floor(left / (self.full_kv_row + self.draft_kv_row)), 0)


def usable_bytes(hardware: Hardware, reserve: float = RESERVE) -> float:
    """Memory of all devices less the reserved share."""
    return hardware.device.memory_bytes * hardware.count * (1 - reserve)


def memory(
    target: ModelShape,
    hardware: Hardware,
    drafting: Drafting | None,
    *,
    context: ArrayLike,
    gamma: ArrayLike = 0,
    weight_bytes: float = 2,
    kv_bytes: float = 2,
) -> Memory:
    """Of plain decoding (`drafting` None), of a draft model, of self-speculation, or of a drafter
    that is no model.

    The full cache holds the context and the γ + 1 tokens of a verify pass; the draft cache the
    budget, or the context with a full draft cache, and the γ tokens it drafts. Self-speculation
    with the target's own weights has no second copy of them.
    """
    s, g = np.broadcast_arrays(np.asarray(context, np.float64), np.asarray(gamma, np.float64))
    token = target.kv_bytes_per_token(kv_bytes) * _copies(target, hardware)
    weights = target.stored * weight_bytes
    if drafting is None:
        return Memory(weights, 0.0, (s + 1) * token, np.zeros(s.shape))
    if drafting.host is not None:
        return Memory(weights, 0.0, (s + g + 1) * token, np.zeros(s.shape))
    drafter = drafting.model or target
    draft_token = drafter.kv_bytes_per_token(kv_bytes) * _copies(drafter, hardware)
    kept = s if drafting.budget is None else np.minimum(s, drafting.budget)
    draft_weights = 0.0
    if drafting.borrowed and drafting.weights == "same":
        draft_weights = 0.0
    elif drafting.model is not None and not drafting.borrowed:
        draft_weights = drafting.model.stored * (drafting.weight_bytes or weight_bytes)
    elif drafting.weights != "same":  # the embedding is shared
        draft_weights = drafter.streamed * (drafting.weight_bytes or weight_bytes)
    return Memory(weights, draft_weights, (s + g + 1) * token, (kept + g) * draft_token)


def _copies(model: ModelShape, hardware: Hardware) -> float:
    """What the fullest device holds, times the devices: KV heads are split only as whole heads."""
    return hardware.count * math.ceil(model.kv_heads / hardware.count) / model.kv_heads
