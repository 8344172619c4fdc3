"""No index: attention scores over all keys."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from magicdec.engine.indexes.base import KeyIndex
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.search import KeySearch


@dataclass(frozen=True)
class ExactIndex(KeyIndex):
    """recent: last positions that are always chosen."""

    search: KeySearch
    recent: int = 0

    def choose(
        self, layer: int, queries: Tensor, keys: Tensor, rows: Candidates, budget: int
    ) -> Tensor:
        mass = self.search.mass(queries, keys, rows)
        return self.search.best(mass, rows, budget, recent=self.recent)
