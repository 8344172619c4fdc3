"""The selector `full`: keeps everything, the control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from magicdec.engine.selectors.base import KVSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Full(KVSelector):
    """Everything: the control. It drafts over the full cache and must accept all under greedy."""

    whole: ClassVar[bool] = True

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        import torch

        heads, length, _ = keys.shape
        return torch.arange(length, device=keys.device).expand(heads, -1)
