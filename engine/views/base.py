"""What a drafting model sees of a KV cache, and what it becomes when tokens are accepted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from magicdec.engine.cache.kv import KVCache, Observer
from magicdec.engine.model.decoder import KVAccess
from magicdec.engine.plugins.contained import Contained
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.trees.tree import Nodes


class DraftView(ABC):
    #: Drafted tokens are written to the full cache, beyond the valid ones.
    shares_cache: bool = False
    #: Wants to see the queries of the verify pass, layer by layer.
    observer: Observer | None = None
    #: How many of a prompt's last queries it wants to see.
    observed: int = 0

    @abstractmethod
    def admit(self, slot: int) -> None:
        """A row was prefilled into `slot` of the full cache."""

    @abstractmethod
    def access(
        self, slots: Sequence[int], ahead: Sequence[int], new: int = 1, nodes: Nodes | None = None
    ) -> KVAccess:
        """For `new` tokens per row, the first of them `ahead` tokens after the row's valid ones.

        nodes: how they branch; `ahead` of the tree's tokens are in the view already.
        """

    @abstractmethod
    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The last `counts` tokens of each row's full cache are new and valid."""

    @abstractmethod
    def entries(self, slot: int) -> int:
        """KV entries that the row's next draft step reads besides those drafted in the step."""


class WholeView(DraftView):
    """No copy: drafts are written beyond the valid length, where the next pass overwrites them."""

    shares_cache = True

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def admit(self, slot: int) -> None:
        pass

    def access(
        self, slots: Sequence[int], ahead: Sequence[int], new: int = 1, nodes: Nodes | None = None
    ) -> KVAccess:
        return self._cache.following(slots, new, ahead=ahead, nodes=nodes)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        pass

    def entries(self, slot: int) -> int:
        return self._cache.lengths[slot]


def failures_named(selector: KVSelector) -> AbstractContextManager[None]:
    # A stranger's calls are guarded one by one, see `plugins.guard`: the package's own pay nothing.
    return Contained(f"selector {type(selector).__name__} failed", lasting=True)
