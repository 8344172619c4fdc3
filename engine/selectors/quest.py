"""The selector `quest`: pages of keys by a bound on their attention (arXiv 2406.10774)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import DynamicSelector, Search

if TYPE_CHECKING:
    from magicdec.engine.indexes.base import KeyIndex, KeyShape


@dataclass(frozen=True)
class Quest(DynamicSelector):
    """Quest (arXiv 2406.10774): pages of keys, by a bound on the attention they can get.

    score(page) = Σ over a KV head's query heads and dimensions of max(q·min, q·max), with the
    page's element-wise extremes. The last page is always chosen; with it at least `pages` are, be
    they more than the budget. The first two layers attend to everything.
    """

    page: int = 16
    pages: int = 3

    dense: ClassVar[int] = 2

    def __post_init__(self) -> None:
        require(self.page >= 1, f"page must be at least 1, got {self.page}")
        require(self.pages >= 1, f"pages must be at least 1, got {self.pages}")

    def kept(self, length: int, budget: int) -> tuple[int, int]:
        """Whole pages that are chosen before the last one, and the entries of that."""
        whole = (length - 1) // self.page
        last = length - whole * self.page
        return min(whole, max(self.pages - 1, (budget - last) // self.page)), last

    def width(self, length: int, budget: int) -> int:
        if length <= budget:
            return length
        whole, last = self.kept(length, budget)
        return whole * self.page + last

    def most(self, budget: int) -> int:
        return max(budget, self.pages * self.page)

    def index(self, shape: KeyShape) -> KeyIndex:
        from magicdec.engine.indexes.pages import PageIndex

        return PageIndex(shape, self.page, self.kept)

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        return Search(once=1 / 2, per_draft=1 / self.page)  # every key; both extremes of a page
