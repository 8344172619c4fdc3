"""The selector `window`: a rolling sliding window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.selectors.base import KVSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Window(KVSelector):
    """The last `budget` positions, rolling: sliding-window attention as a draft."""

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        import torch

        heads, length, _ = keys.shape
        recent = torch.arange(max(0, length - budget), length, device=keys.device)
        return recent.expand(heads, -1)

    def ring(self, budget: int) -> int:
        return budget
