"""The contract every attention backend fulfils.

It is `flash_attn_with_kvcache`'s: queries [B, T, H, D] against caches seen as [rows, S, Hkv, D]
with a valid length per row; causal, the last query aligned with the last valid key; grouped query
heads share a KV head without K/V being repeated; an optional sliding window. `rows` is that
function's `cache_batch_idx`: rows of a batch may live anywhere in the cache, so a finished row
leaves by not being named any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from magicdec.kernels.pointwise import Pointwise
from magicdec.kernels.search import KeySearch


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What one forward asks of attention, the same for all its layers.

    lengths are host integers, new tokens included: the loop knows them without asking the device.
    """

    rows: tuple[int, ...]  # cache row of each batch row
    lengths: tuple[int, ...]  # valid keys of each batch row, the T new ones included
    new: int  # T
    window: int | None = None  # a query sees its last `window` keys, itself included
    #: bool [B, T, W], when the T new tokens are nodes of trees: which of its row's last W keys each
    #: sees, its ancestors and itself, every key before them besides. The first of the W is the
    #: root, parents come before their children, and a node's position is the root's plus its depth.
    tree: Tensor | None = field(default=None, compare=False)


class AttentionPlan(ABC):
    """A backend prepared for one forward: masks and splits are made once, not once per layer."""

    @abstractmethod
    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        """q [B, T, H, D]; one layer's caches [rows, Hkv, S, D] as `allocate` made them.

        The caches may be stored in another dtype than q's, which is that of arithmetic and result.
        Returns [B, T, H, D]. Query t of batch row b sees the keys before lengths[b] - T + t + 1,
        or what `tree` says. A window counts positions in the text: in a tree, generations.
        """


class AttentionBackend(ABC):
    """Makes plans and owns the memory order of the caches."""

    name: str
    pointwise: Pointwise = Pointwise()  # the operations around attention that go well with it
    search: KeySearch = KeySearch()  # and what finds the entries worth attending to

    def allocate(
        self, layers: int, rows: int, kv_heads: int, capacity: int, head_dim: int,
        *, dtype: torch.dtype, device: torch.device,
    ) -> Tensor:  # fmt: skip
        """Zeroed storage for K or V, seen as [layers, rows, kv_heads, capacity, head_dim].

        Zeroed because masked positions are multiplied by zero, and zero times NaN is NaN.
        A backend that wants another memory order returns a permuted view.
        """
        return torch.zeros(layers, rows, kv_heads, capacity, head_dim, dtype=dtype, device=device)

    @abstractmethod
    def plan(
        self, shape: AttentionShape, *, query_heads: int, kv_heads: int,
        dtype: torch.dtype, device: torch.device,
    ) -> AttentionPlan:  # fmt: skip
        """Prepares for one forward. Scores are scaled by 1/sqrt(head_dim)."""
