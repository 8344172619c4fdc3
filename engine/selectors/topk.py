"""The selector `topk`: the oracle, all keys searched in every draft step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.selectors.base import DynamicSelector, Search

if TYPE_CHECKING:
    from magicdec.engine.indexes.base import KeyIndex, KeyShape


@dataclass(frozen=True)
class TopK(DynamicSelector):
    """The oracle: every draft step reads all keys and keeps those with the most attention.

    score(s) = Σ over the KV head's query heads of softmax(q·k / √D). It bounds the acceptance that
    other choices of as many entries reach, and costs half of full attention to find.
    """

    def index(self, shape: KeyShape) -> KeyIndex:
        from magicdec.engine.indexes.exact import ExactIndex

        return ExactIndex(shape.search)

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        return Search(per_draft=1 / 2)  # every key
