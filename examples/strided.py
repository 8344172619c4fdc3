"""A KV selector from outside the package: every n-th position and the most recent ones.

    PYTHONPATH=examples magicdec run builtin:pydoc --context 2000 \\
        --selector strided:Strided --selector-option recent=64 --compare

A package makes it available by name with an entry point:

    [project.entry-points."magicdec.selectors"]
    strided = "strided:Strided"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import KVSelector

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Strided(KVSelector):
    """Evenly spaced positions of the prompt, and its last `recent` ones."""

    recent: int = 32

    def __post_init__(self) -> None:
        require(self.recent >= 0, f"recent must be at least 0, got {self.recent}")

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        import torch

        heads, length, _ = keys.shape
        budget = min(budget, length)
        recent = min(max(self.recent, 1), budget)
        spaced = torch.arange(budget - recent, device=keys.device)
        spaced = spaced * (length - recent) // max(1, budget - recent)
        tail = torch.arange(length - recent, length, device=keys.device)
        return torch.cat((spaced, tail)).expand(heads, -1)  # [Hkv, W]
