"""The compact view of a draft model: nothing but this view holds what its passes wrote."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.engine.cache import KVCache, KVStore
from magicdec.engine.model.decoder import KVAccess
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.trees.tree import Nodes
from magicdec.engine.views.compact import CompactView


class DetachedView(CompactView):
    """Selected entries of a prompt, whose own cache serves one row after the other; then the
    accepted tokens as the draft model wrote them."""

    def __init__(
        self, store: KVStore, prefilled: KVCache, selector: KVSelector, budget: int
    ) -> None:
        super().__init__(store, selector, budget)
        self._prefilled = prefilled
        self._lengths, self._prompts = [0] * store.rows, [0] * store.rows

    def admit(self, slot: int) -> None:
        """Takes the prompt that was prefilled last."""
        prompt = self._prefilled.prompts[0]
        self._fill(slot, self._prefilled, 0, [] if prompt is None else list(prompt.queries))
        self._lengths[slot] = self._prefilled.lengths[0]
        self._prompts[slot] = self._prefilled.prompt_lengths[0]

    def access(
        self, slots: Sequence[int], ahead: Sequence[int], new: int = 1, nodes: Nodes | None = None
    ) -> KVAccess:
        return self.store.access(
            slots,
            [self.entries(s) + a for s, a in zip(slots, ahead, strict=True)],
            [
                self._lengths[s] + (a if nodes is None else 0)
                for s, a in zip(slots, ahead, strict=True)
            ],
            [self._prompts[s] for s in slots],
            new,
            windowed=False,
            nodes=nodes,
        )

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The first `counts` of the tokens that were fed after the valid ones become valid."""
        self._add(slots, counts, self.store, [self.entries(s) for s in slots])
        for slot, count in zip(slots, counts, strict=True):
            self._lengths[slot] += count
