"""The selector `reuse`: what the last verify pass attended to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import DynamicSelector, Search

if TYPE_CHECKING:
    from magicdec.engine.indexes.base import KeyIndex, KeyShape


@dataclass(frozen=True)
class Reuse(DynamicSelector):
    """What the verify pass attended to at its last accepted token, and the latest positions.

    PillarAttn (SparseSpec) and Vegas (arXiv 2602.07223). Attention kernels keep their scores to
    themselves: here those of one query are computed again from the verify pass's own q, half of
    what plain attention reads, every `refresh` passes. Both papers keep 256 entries or 5-7% of the
    context, whichever is more; that is the budget here.
    """

    refresh: int = 1
    recent: int = 32

    def __post_init__(self) -> None:
        require(self.refresh >= 1, f"refresh must be at least 1, got {self.refresh}")
        require(self.recent >= 0, f"recent must be at least 0, got {self.recent}")

    def index(self, shape: KeyShape) -> KeyIndex:
        from magicdec.engine.indexes.exact import ExactIndex

        return ExactIndex(shape.search, self.recent)

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        return Search(once=1 / 2, per_verify=1 / 2 / self.refresh)  # every key
