"""What a dynamic selector keeps about the keys of a cache, so that choosing is cheap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from magicdec.kernels.candidates import Candidates
from magicdec.kernels.search import KeySearch


@dataclass(frozen=True, slots=True)
class KeyShape:
    """The keys of a cache, [layers, rows, kv_heads, capacity, head_dim], and what searches them."""

    layers: int
    rows: int
    kv_heads: int
    capacity: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    search: KeySearch = field(default_factory=KeySearch)


class KeyIndex(ABC):
    """All rows and layers of a cache; each row's entries are those of a text, in order.

    `keys` are the cache's own: to write there would change the text, and ends the run.
    """

    def admit(self, slot: int, keys: Tensor) -> None:
        """keys [L, Hkv, S, D] of a new row, rotated; they replace what the slot held."""
        self.extend(slot, keys, 0)

    def extend(self, slot: int, keys: Tensor, first: int) -> None:  # noqa: B027 (some keep nothing)
        """keys [L, Hkv, S, D], all of the row's; those from `first` on are new."""

    @abstractmethod
    def choose(
        self, layer: int, queries: Tensor, keys: Tensor, rows: Candidates, budget: int
    ) -> Tensor:
        """The positions that are worth attending to, one choice per row and KV head.

        queries: [n, Hkv, G, D], one per row and head, grouped by KV head; keys: [n, Hkv, S, D] with
        S = rows.longest > budget.
        Returns int64 [n, Hkv, W]; in each row the first `width(length, budget)` count, the rest is
        padding, but inside 0..S-1.
        """

    def tensors(self) -> list[Tensor]:
        """What the index holds."""
        return []

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors())
