"""How a model reads the texts of some rows, several tokens a pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from magicdec.engine.cache import KVCache
from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.model.decoder import KVAccess
from magicdec.engine.views.base import DraftView
from magicdec.profiles.survey.trace import TracedRow

#: Tokens of a row in one pass: a cache has scratch for so many, and memory forecasts know it.
WIDTH = MAX_GAMMA


class Reader(ABC):
    #: The most tokens of a row in one pass.
    width: int = WIDTH

    @abstractmethod
    def access(self, rows: Sequence[TracedRow], start: int, new: int) -> KVAccess:
        """For `new` tokens of each row's text, from `start` on."""

    def passed(  # noqa: B027 (most have nothing to do)
        self, rows: Sequence[TracedRow], tokens: Tensor, counts: Sequence[int]
    ) -> None:
        """The pass is over. tokens [n, new]: what it was fed; of each row `counts` are its own."""


class TargetReader(Reader):
    """The target itself. It writes the texts' K/V anew: rows of one prompt may have swapped
    slots."""

    def __init__(self, cache: KVCache, rows: Sequence[TracedRow]) -> None:
        self._cache = cache
        for row in rows:
            cache.lengths[row.slot] = row.prompt

    def access(self, rows: Sequence[TracedRow], start: int, new: int) -> KVAccess:
        return self._cache.following([row.slot for row in rows], new)

    def passed(self, rows: Sequence[TracedRow], tokens: Tensor, counts: Sequence[int]) -> None:
        self._cache.advance([row.slot for row in rows], counts)


class SteppingReader(Reader):
    """Any view, in steps as long as a draft: then the target's K/V of them take the place of the
    draft's, by the commit that ends a real step."""

    def __init__(
        self, cache: KVCache, view: DraftView, rows: Sequence[TracedRow], block: int
    ) -> None:
        self._cache, self._view, self.width = cache, view, block
        self._before: list[tuple[Tensor, Tensor]] = []  # parts of the cache, and what they held
        for row in rows:
            cache.lengths[row.slot] = row.prompt
            view.admit(row.slot)

    def access(self, rows: Sequence[TracedRow], start: int, new: int) -> KVAccess:
        if self._view.shares_cache:  # what it writes there has to be taken back
            lengths = self._cache.lengths
            spans = [(r.slot, slice(lengths[r.slot], lengths[r.slot] + new)) for r in rows]
            parts = [
                store[:, slot, :, span]
                for store in (self._cache.k, self._cache.v)
                for slot, span in spans
            ]
            self._before = [(part, part.clone()) for part in parts]
        return self._view.access([row.slot for row in rows], [0] * len(rows), new)

    def passed(self, rows: Sequence[TracedRow], tokens: Tensor, counts: Sequence[int]) -> None:
        cache, view, slots = self._cache, self._view, [row.slot for row in rows]
        for part, before in self._before:
            part.copy_(before)
        if view.observer is not None:  # the verify pass that it would have seen
            cache.model.forward(
                tokens, cache.following(slots, tokens.shape[1], observer=view.observer)
            )
        cache.advance(slots, counts)
        view.commit(slots, counts)
