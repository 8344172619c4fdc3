"""The plug-in point for sparse-KV drafting: which prompt positions may a draft step attend to?

This module and the selectors import torch inside methods only, so that listing them is cheap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

    from magicdec.engine.indexes.base import KeyIndex, KeyShape


@dataclass(frozen=True, slots=True)
class Search:
    """What choosing reads of a row, in KV entries (K and V of a token) per cached token.

    The cost model prices it as T_select; what a selector reads of keys alone counts half.
    """

    once: float = 0.0  # when the row is admitted, after its prefill
    per_draft: float = 0.0  # in every draft step
    per_verify: float = 0.0  # after every verify pass


class KVSelector(ABC):
    """Chooses, once per row after prefill, what stays in the draft's KV cache.

    A subclass is one file with one dataclass; its fields are its options. The class docstring's
    first line is what `magicdec selectors` shows.
    """

    #: True when the draft attends to the full cache itself: nothing is selected or copied.
    whole: ClassVar[bool] = False

    @property
    def observed(self) -> int:
        """How many of the prompt's last queries `select` wants to see; 0 for none."""
        return 0

    @abstractmethod
    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        """Positions to keep, for one layer of one row.

        keys: [Hkv, S, D], rotated as they lie in the cache; queries: [H, observed, D], those of
        the prompt's last positions (fewer when the prompt is shorter). A selector from outside
        the package gets copies.
        Returns int64 [Hkv, W] with W = min(budget, S); sorted and unique in each head.
        """

    def ring(self, budget: int) -> int | None:
        """How many of the budget's entries roll: accepted tokens replace the oldest of them.

        None: nothing rolls, accepted tokens are kept on top of the budget.
        """
        return None

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        """The traffic of the search, for keys of so many elements of so many bytes."""
        return Search()


class ScoredSelector(KVSelector):
    """Keeps sinks, the most recent positions and the best-scored ones between them.

    A subclass says what scores well; `sinks` and `recent` may be fields or properties of it.
    """

    @property
    def sinks(self) -> int:
        """First positions that are always kept."""
        return 0

    @property
    def recent(self) -> int:
        """Last positions that are always kept; they win when the budget is too small for both."""
        return 0

    @abstractmethod
    def score(self, keys: Tensor, queries: Tensor) -> Tensor:
        """Importance of every position: keys [Hkv, S, D] -> [Hkv, S], larger is better."""

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        return Search(once=1 / 2)  # every key

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        from magicdec.engine.scoring import keep_best

        return keep_best(self.score(keys, queries), budget, sinks=self.sinks, recent=self.recent)


class DynamicSelector(KVSelector):
    """Chooses among all valid entries, with the query at hand, again and again as a row grows.

    What it needs to know about the keys is in the index that it makes.
    """

    #: So many first layers attend to everything.
    dense: ClassVar[int] = 0

    @property
    def refresh(self) -> int:
        """0: every draft step chooses with its own query. n: every n-th verify pass does, with the
        target's last accepted query, and the draft steps between read that choice."""
        return 0

    @property
    def observed(self) -> int:
        return 1

    @abstractmethod
    def index(self, shape: KeyShape) -> KeyIndex:
        """Empty, for a cache whose keys are of this shape.

        Raises ConfigError when the options do not fit the shape.
        """

    def width(self, length: int, budget: int) -> int:
        """How many entries of a row of `length` it chooses; all when they are within the budget."""
        return min(length, budget)

    def most(self, budget: int) -> int:
        """The most entries that it ever chooses of a row that is beyond the budget."""
        return budget

    def select(self, keys: Tensor, queries: Tensor, budget: int) -> Tensor:
        """What the last of the queries chooses; W is `width`."""
        from magicdec.engine.indexes.base import KeyShape
        from magicdec.kernels.candidates import Candidates

        heads, length, dim = keys.shape
        row = Candidates(0, (length,), keys.device)
        if length <= budget:
            return row.positions.expand(heads, -1)
        index = self.index(KeyShape(1, 1, heads, length, dim, keys.dtype, keys.device))
        index.admit(0, keys[None])
        last = queries[:, -1].reshape(1, heads, -1, dim)
        chosen = index.choose(0, last, keys[None], row, budget)[0]
        return chosen[:, : self.width(length, budget)].sort(dim=1).values
