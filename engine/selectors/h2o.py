"""The selector `h2o`: heavy hitters by accumulated attention (arXiv 2306.14048)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import ScoredSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class H2O(ScoredSelector):
    """H2O (arXiv 2306.14048): heavy hitters and the most recent positions, half the budget each.

    A heavy hitter is a position that gathered much attention: score(s) = Σ over queries and a KV
    head's query heads of softmax(q·k / √D). The paper counts the queries of the whole prompt. Here
    it is its last `queries`: more of them are kept in memory, and computed for every row.
    """

    queries: int = 64

    def __post_init__(self) -> None:
        require(self.queries >= 1, f"queries must be at least 1, got {self.queries}")

    @property
    def observed(self) -> int:
        return self.queries

    def score(self, keys: Tensor, queries: Tensor) -> Tensor:
        from magicdec.engine.scoring import attention_mass

        return attention_mass(keys, queries)

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        from magicdec.engine.scoring import keep_best

        return keep_best(self.score(keys, queries), budget, recent=budget - budget // 2)
