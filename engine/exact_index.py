"""No index: attention scores over all keys."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from magicdec.engine.candidates import Candidates
from magicdec.engine.key_index import KeyIndex
from magicdec.engine.scoring import query_mass


@dataclass(frozen=True)
class ExactIndex(KeyIndex):
    """recent: last positions that are always chosen."""

    recent: int = 0

    def choose(
        self, layer: int, queries: Tensor, keys: Tensor, rows: Candidates, budget: int
    ) -> Tensor:
        return rows.best(query_mass(queries, keys, rows), budget, recent=self.recent)
