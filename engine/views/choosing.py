"""A dynamic selector at work on a cache: its index kept up to date, its choices copied out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.cache import KVCache
from magicdec.engine.errors import MagicdecError
from magicdec.engine.key_index import KeyShape
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.views.failures import failures_named
from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.sdpa import runs


class Chooser:
    """Chooses for the first `layers` layers of `cache`."""

    def __init__(
        self, cache: KVCache, selector: DynamicSelector, *, budget: int, layers: int
    ) -> None:
        self.layers, self.selector, self.budget = layers, selector, budget
        self._cache = cache
        _, rows, heads, capacity, dim = cache.k.shape
        self.index = selector.index(
            KeyShape(
                layers, rows, heads, capacity, dim, cache.dtype, cache.k.device,
                cache.backend.search,
            )
        )  # fmt: skip

    def admit(self, slot: int) -> None:
        with failures_named(self.selector):
            self.index.admit(slot, self._keys(slot))

    def extend(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Each row's last `counts` valid tokens are new."""
        with failures_named(self.selector):
            for slot, count in zip(slots, counts, strict=True):
                self.index.extend(slot, self._keys(slot), self._cache.lengths[slot] - count)

    def width(self, length: int) -> int:
        return self.selector.width(length, self.budget)

    def choose(self, layer: int, q: Tensor, rows: Candidates) -> Tensor:
        """q: [n, H, D], one query per row. Returns positions [n, Hkv, W], see `KeyIndex.choose`."""
        keys = self._cache.k[layer, rows.rows, :, : rows.longest]
        n, heads = keys.shape[:2]
        if rows.longest <= self.budget:
            return rows.positions.expand(n, heads, -1)
        grouped = q.reshape(n, heads, -1, q.shape[-1])
        with failures_named(self.selector):
            chosen = self.index.choose(layer, grouped, keys, rows, self.budget)
            wanted = (n, heads, max(map(self.width, rows.lengths)))
            if chosen.shape != wanted:
                name = type(self.selector).__name__
                raise MagicdecError(
                    f"selector {name} returned {list(chosen.shape)}, not {list(wanted)}"
                )
        return chosen

    def _keys(self, slot: int) -> Tensor:
        return self._cache.k[: self.layers, slot, :, : self._cache.lengths[slot]]


def split(
    slots: Sequence[int], lengths: Sequence[int], device: torch.device
) -> list[tuple[slice, Candidates]]:
    """Rows of a batch, in parts that lie side by side in the cache and are of similar length.

    With each part comes its slice of the batch.
    """
    shape = AttentionShape(tuple(slots), tuple(lengths), 1)
    return [
        (slice(a, b), Candidates(shape.rows[a], shape.lengths[a:b], device)) for a, b in runs(shape)
    ]
