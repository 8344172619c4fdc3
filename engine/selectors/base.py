"""The plug-in point for sparse-KV drafting: which prompt positions may a draft step attend to?

This module and the selectors import torch inside methods only, so that listing them is cheap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from magicdec.engine.errors import require
from magicdec.engine.plugins import Registry

if TYPE_CHECKING:
    from torch import Tensor


class KVSelector(ABC):
    """Chooses, once per row after prefill, what stays in the draft's KV cache.

    A subclass is one file with one dataclass; its fields are its options. The class docstring's
    first line is what `magicdec selectors` shows.
    """

    #: How many of the prompt's last queries `select` wants to see; 0 for none.
    observed: int = 0
    #: True when the draft attends to the full cache itself, and nothing is selected or copied.
    whole: ClassVar[bool] = False

    @abstractmethod
    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        """Positions to keep, for one layer of one row.

        keys: [Hkv, S, D], rotated as they lie in the cache; queries: [H, observed, D], those of
        the prompt's last positions (fewer when the prompt is shorter).
        Returns int64 [Hkv, W] with W = min(budget, S); sorted and unique in each head.
        """

    def ring(self, budget: int) -> int | None:
        """How many of the budget's entries roll: accepted tokens replace the oldest of them.

        None: nothing rolls, accepted tokens are kept on top of the budget.
        """
        return None


@dataclass
class ScoredSelector(KVSelector):
    """Keeps sinks, the most recent positions and the best-scored ones between them."""

    sinks: int = 0
    recent: int = 32

    def __post_init__(self) -> None:
        require(self.sinks >= 0, f"sinks must be at least 0, got {self.sinks}")
        require(self.recent >= 0, f"recent must be at least 0, got {self.recent}")

    @abstractmethod
    def score(self, keys: Tensor, queries: Tensor) -> Tensor:
        """Importance of every position: keys [Hkv, S, D] -> [Hkv, S], larger is better."""

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        length = keys.shape[1]
        scores = self.score(keys, queries).clone()  # [Hkv, S]
        top = scores.new_tensor(float("inf"))
        # When the budget is smaller than sinks + recent, the recent ones win.
        recent = min(self.recent, budget, length)
        sinks = min(self.sinks, budget - recent, length - recent)
        scores[:, length - recent :] = top
        scores[:, :sinks] = top
        kept = scores.topk(min(budget, length), dim=1, sorted=False).indices  # [Hkv, W]
        return kept.sort(dim=1).values


SELECTORS: Registry[KVSelector] = Registry(
    KVSelector,  # type: ignore[type-abstract]
    package="magicdec.engine.selectors",
    group="magicdec.selectors",
)
