"""The view of a model that drafts for itself over what a static selector chose."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.engine.cache import KVCache, KVStore
from magicdec.engine.model.decoder import Decoder, KVAccess
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.trees.tree import Nodes
from magicdec.engine.views.compact import CompactView


class SelectedView(CompactView):
    """Entries of the full cache. Accepted tokens come from there, too: the target's own K/V
    replace what the draft wrote, so that the view never drifts."""

    def __init__(
        self, cache: KVCache, selector: KVSelector, *, budget: int, capacity: int,
        model: Decoder | None = None,
    ) -> None:  # fmt: skip
        store = KVStore(
            model or cache.model, cache.backend, rows=cache.rows, capacity=capacity,
            dtype=cache.dtype,
        )  # fmt: skip
        super().__init__(store, selector, budget)
        self._cache = cache

    def admit(self, slot: int) -> None:
        prompt = self._cache.prompts[slot]
        assert prompt is not None
        self._fill(slot, self._cache, slot, list(prompt.queries))

    def access(
        self, slots: Sequence[int], ahead: Sequence[int], new: int = 1, nodes: Nodes | None = None
    ) -> KVAccess:
        cache = self._cache
        return self.store.access(
            slots,
            [self.entries(s) + a for s, a in zip(slots, ahead, strict=True)],
            [
                cache.lengths[s] + (a if nodes is None else 0)
                for s, a in zip(slots, ahead, strict=True)
            ],
            [cache.prompt_lengths[s] for s in slots],
            new,
            windowed=False,  # entries are not in text order, and the selection is small
            nodes=nodes,
        )

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        lengths = [self._cache.lengths[s] for s in slots]
        first = [length - count for length, count in zip(lengths, counts, strict=True)]
        self._add(slots, counts, self._cache, first)
