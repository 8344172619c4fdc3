"""The selector `snapkv`: what the prompt's last queries attended to (arXiv 2404.14469)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import ScoredSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SnapKV(ScoredSelector):
    """SnapKV (arXiv 2404.14469): what the prompt's last `window` queries attended to.

    score(s) = Σ over the KV head's query heads of avgpool_s( Σ over the window's queries of
    softmax(q·k / √D) ), pooled over `pool` neighbours; the window itself is always kept.
    """

    window: int = 32
    pool: int = 5

    def __post_init__(self) -> None:
        require(self.window >= 1, f"window must be at least 1, got {self.window}")
        require(
            self.pool >= 1 and self.pool % 2 == 1, f"pool must be odd and positive, got {self.pool}"
        )

    @property
    def observed(self) -> int:
        return self.window

    @property
    def recent(self) -> int:
        return self.window

    def score(self, keys: Tensor, queries: Tensor) -> Tensor:
        import torch
        from torch.nn.functional import avg_pool1d

        from magicdec.engine.scoring import attention_weights

        kv_heads, length, _ = keys.shape
        heads, window, _ = queries.shape
        before = length - window  # the window itself is kept anyway
        scores = keys.new_zeros(kv_heads, length, dtype=torch.float32)
        if before > 0:
            mass = attention_weights(keys, queries)[:, :, :before].sum(dim=1)  # [H, before]
            pooled = avg_pool1d(mass, self.pool, stride=1, padding=self.pool // 2)
            scores[:, :before] = pooled.view(kv_heads, heads // kv_heads, -1).sum(dim=1)
        return scores
