"""The full KV cache: one row per slot, each with its own valid length.

A token's K/V are written at its position before anyone knows whether it will be accepted.
Rejected tokens simply stay beyond the valid length and are overwritten by the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from magicdec.engine.model.decoder import Decoder
from magicdec.engine.plugins.key_seal import KeySeal
from magicdec.engine.trees.tree import Nodes
from magicdec.kernels.attention import AttentionBackend, AttentionPlan, AttentionShape
from magicdec.kernels.pointwise import Entries
from magicdec.kernels.transfer import to_device

#: Queries of the prompt's end that are kept, so that most selectors need no second look.
KEPT_QUERIES = 64

Observer = Callable[[int, Tensor], None]  # (layer, q [n, T, H, D])


class KVStore:
    """K and V of some rows, [L, rows, Hkv, capacity, D] each, and how a forward reaches them.

    dtype: what they are stored in, the model's unless given; attention computes in the model's.
    """

    def __init__(
        self, model: Decoder, backend: AttentionBackend, *, rows: int, capacity: int,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        spec = model.spec
        self.model, self.backend, self.rows, self.capacity = model, backend, rows, capacity
        self.dtype = dtype or model.dtype
        self.k, self.v = (
            backend.allocate(
                spec.layers, rows, spec.kv_heads, capacity, spec.head_dim,
                dtype=self.dtype, device=model.device,
            )
            for _ in range(2)
        )  # fmt: skip

    def access(
        self,
        slots: Sequence[int],
        entries: Sequence[int],
        positions: Sequence[int],
        prompts: Sequence[int],
        new: int,
        *,
        windowed: bool = True,
        observer: Observer | None = None,
        nodes: Nodes | None = None,
    ) -> StoreAccess:
        """One forward over `new` tokens of each row in `slots`.

        entries: where each row's first new token goes in this store; positions: that token's
        position in the text; prompts: the rows' prompt lengths (dynamic RoPE). Host integers all:
        the loop knows them, and plans made from them need no device synchronisation.
        windowed: whether the model's sliding windows apply to this store's order of entries.
        nodes: how the new tokens branch; positions are then those of the roots.
        """
        spec, device = self.model.spec, self.model.device
        lengths = tuple(e + new for e in entries)
        assert max(lengths) <= self.capacity, (lengths, self.capacity)
        tree = None if nodes is None else nodes.seen
        plans = {
            window: self.backend.plan(
                AttentionShape(tuple(slots), lengths, new, window, tree),
                query_heads=spec.heads, kv_heads=spec.kv_heads,
                dtype=self.model.dtype, device=device,
            )
            for window in (set(spec.windows) if windowed else {None})
        }  # fmt: skip
        # One small host-to-device copy carries every index this forward needs.
        index = to_device([slots, entries, positions], device)  # [3, n]
        span = new if nodes is None else nodes.deepest + 1
        rope = self.model.rope.tables(
            index[2, :, None] + torch.arange(span, device=device),
            prompts,
            [p + span - 1 for p in positions],
        )
        if nodes is not None:  # a token's rotation is its depth's
            rope = rope[:, torch.arange(len(slots), device=device)[:, None], nodes.depths]
        return StoreAccess(
            store=self,
            plans=[plans[w if windowed else None] for w in spec.windows],
            rope=rope,
            place=Entries(index[0], index[1], new),
            observer=observer,
        )


@dataclass(slots=True)
class StoreAccess:
    """The KVAccess of one forward: writes the new K/V, then attends over what is valid."""

    store: KVStore
    plans: list[AttentionPlan]  # per layer
    rope: Tensor  # [2, n, T, D]
    place: Entries
    observer: Observer | None = None

    def write(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        """Rotates q and k, stores k and v, and returns q [n, T, H, D]."""
        k_cache, v_cache = self.store.k[layer], self.store.v[layer]  # [rows, Hkv, capacity, D]
        return self.store.model.pointwise.store(qk, v, self.rope, k_cache, v_cache, self.place)

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        q = self.write(layer, qk, v)
        if self.observer is not None:
            self.observer(layer, q)
        return self.plans[layer].attend(q, self.store.k[layer], self.store.v[layer])


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a slot's cache still holds of the last prompt that was prefilled into it."""

    tokens: NDArray[np.int64]  # [S]
    queries: Tensor  # [L, H, w, D], those of the last w prompt tokens
    logits: Tensor  # [V], after the last prompt token


class KVCache(KVStore):
    """The target's cache, one slot per row of the batch.

    `lengths` are host integers: every step ends with reading the accepted counts back anyway,
    because text, stop strings and limits are decided on the host.
    """

    def __init__(
        self, model: Decoder, backend: AttentionBackend, *, rows: int, capacity: int,
        dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model, backend, rows=rows, capacity=capacity, dtype=dtype)
        self.lengths = [0] * rows
        self.prompt_lengths = [0] * rows
        self.prompts: list[Prompt | None] = [None] * rows
        self.seal: KeySeal | None = None  # while keys are shown to a stranger's code

    def following(
        self, slots: Sequence[int], new: int, *, ahead: Sequence[int] | None = None,
        observer: Observer | None = None, nodes: Nodes | None = None,
    ) -> StoreAccess:  # fmt: skip
        """Access for `new` tokens that come `ahead` (none) tokens after each row's valid ones.

        nodes: how they branch. Their roots then are the tokens right after the valid ones.
        """
        ahead = ahead or [0] * len(slots)
        starts = [self.lengths[s] + a for s, a in zip(slots, ahead, strict=True)]
        positions = starts if nodes is None else [self.lengths[s] for s in slots]
        prompts = [self.prompt_lengths[s] for s in slots]
        return self.access(slots, starts, positions, prompts, new, observer=observer, nodes=nodes)

    def advance(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Declares each row's next `counts` tokens valid. What lies beyond is scratch."""
        for slot, count in zip(slots, counts, strict=True):
            self.lengths[slot] += count
        if self.seal is not None:
            self.seal.extend(slots, counts)

    def straighten(self, slots: Sequence[int], paths: Sequence[Sequence[int]]) -> None:
        """Moves tokens of a tree, which follow the root, to the entries right after it.

        paths: for each row, where in the tree they are, the root being 0; parents come first.
        """
        moves = [
            (slot, self.lengths[slot] + node, self.lengths[slot] + to)
            for slot, path in zip(slots, paths, strict=True)
            for to, node in enumerate(path, start=1)
            if node != to
        ]
        if not moves:
            return
        slot, old, new = to_device(moves, self.k.device).T
        for store in (self.k, self.v):
            store[:, slot, :, new] = store[:, slot, :, old]  # read before anything is written

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Makes `target` hold the first `length` tokens of `source`, and nothing else."""
        if source != target:
            for store in (self.k, self.v):
                store[:, target, :, :length] = store[:, source, :, :length]
        self.lengths[target] = length
