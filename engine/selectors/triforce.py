"""The selector `triforce`: chunks whose mean key fits the last query (arXiv 2404.11912)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import ScoredSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TriForce(ScoredSelector):
    """TriForce's retrieval (arXiv 2404.11912): chunks whose mean key fits the last prompt query.

    score(chunk) = Σ over a KV head's query heads of q · mean(keys of the chunk). The first chunk is
    always kept. The last `recent` positions are too, which the paper leaves to the score.
    """

    chunk: int = 8
    recent: int = 8

    def __post_init__(self) -> None:
        require(self.chunk >= 1, f"chunk must be at least 1, got {self.chunk}")
        require(self.recent >= 0, f"recent must be at least 0, got {self.recent}")

    @property
    def observed(self) -> int:
        return 1

    @property
    def sinks(self) -> int:
        return self.chunk

    def score(self, keys: Tensor, queries: Tensor) -> Tensor:
        from torch.nn.functional import avg_pool1d

        kv_heads, length, dim = keys.shape
        # The last chunk may be short: its mean is over what it has.
        means = avg_pool1d(
            keys.float().transpose(1, 2), self.chunk, ceil_mode=True, count_include_pad=False
        )  # [Hkv, D, chunks]
        query = queries[:, -1].float().view(kv_heads, -1, dim).sum(dim=1)  # [Hkv, D]
        fit = (query[:, None] @ means)[:, 0]  # [Hkv, chunks]
        return fit.repeat_interleave(self.chunk, dim=1)[:, :length]
