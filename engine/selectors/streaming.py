"""The selector `streaming`: attention sinks and a rolling window (arXiv 2309.17453)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import KVSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Streaming(KVSelector):
    """StreamingLLM (arXiv 2309.17453): the first `sinks` positions and a rolling recent window.

    Keys keep their original rotation, which is right as long as the context lies inside the
    trained window.
    """

    sinks: int = 4

    def __post_init__(self) -> None:
        require(self.sinks >= 0, f"sinks must be at least 0, got {self.sinks}")

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        import torch

        heads, length, _ = keys.shape
        position = torch.arange(min(budget, length), device=keys.device)
        skipped = max(0, length - budget)
        return torch.where(position < self.sinks, position, position + skipped).expand(heads, -1)

    def ring(self, budget: int) -> int:
        require(
            budget > self.sinks,
            f"budget {budget} leaves no room beside {self.sinks} sinks; "
            f"raise it above {self.sinks} or lower the option sinks",
        )
        return budget - self.sinks
