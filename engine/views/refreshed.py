"""The view of a selector that chooses after verify passes, with the target's own queries."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.views.compact import SelectedView
from magicdec.engine.views.dynamic import Chooser, split
from magicdec.kernels.search import starts
from magicdec.kernels.transfer import to_device


class RefreshedView(SelectedView):
    """Between two choices accepted tokens are kept on top of the chosen ones.

    scratch: of `capacity`, the entries for what is drafted in a step.
    """

    def __init__(
        self, cache: KVCache, selector: DynamicSelector, *, budget: int, capacity: int,
        scratch: int, model: Decoder, clock: Clock,
    ) -> None:  # fmt: skip
        super().__init__(cache, selector, budget=budget, capacity=capacity, model=model)
        self._room = capacity - scratch
        self.chooser = Chooser(cache, selector, budget=budget, layers=model.spec.layers)
        self.observer = self._observe
        self._refresh, self._clock = selector.refresh, clock
        self._passes = [0] * cache.rows  # verify passes since the slot's last choice
        self._seen: dict[int, Tensor] = {}  # by layer: q of the last verify pass, [n, T, H, D]

    def _observe(self, layer: int, q: Tensor) -> None:
        if layer < self.chooser.layers:
            self._seen[layer] = q

    def admit(self, slot: int) -> None:
        prompt = self._cache.prompts[slot]
        assert prompt is not None
        with self._clock.phase("select"):
            self.chooser.admit(slot)
            length = self._cache.prompt_lengths[slot]
            self._choose([slot], [length], list(prompt.queries[:, None, :, -1]))

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        for slot in slots:
            self._passes[slot] += 1
        due = [
            i for i, slot in enumerate(slots)
            if self._passes[slot] >= self._refresh and self._seen  # plain steps are not watched
        ]  # fmt: skip
        rest = [i for i in range(len(slots)) if i not in due]
        if rest:
            self._follow([slots[i] for i in rest], [counts[i] for i in rest])
        with self._clock.phase("select"):
            self.chooser.extend(slots, counts)
            if due:
                index = to_device([due, [counts[i] - 1 for i in due]], self.store.k.device)
                queries = [q[index[0], index[1]] for _, q in sorted(self._seen.items())]
                chosen = [slots[i] for i in due]
                self._choose(chosen, [self._cache.lengths[slot] for slot in chosen], queries)
        self._seen.clear()

    def _follow(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Keeps accepted tokens on top. Plain steps may have given more than there is room for, and
        nobody saw their queries: the latest entries then serve until the next verify pass."""
        taken = list(counts)
        for i, (slot, count) in enumerate(zip(slots, counts, strict=True)):
            if self._added[slot] + count > self._room:
                taken[i] = self.chooser.width(self._cache.lengths[slot])
                self._added[slot], self._passes[slot] = 0, self._refresh
        super().commit(slots, taken)

    def _choose(
        self, slots: Sequence[int], lengths: Sequence[int], queries: Sequence[Tensor]
    ) -> None:
        """Among each row's first `lengths` entries. queries: of each layer [n, H, D], those of the
        last of them."""
        cache, store = self._cache, self.store
        for batch, rows in split(slots, lengths, store.k.device):
            first = starts(cache.k[0], rows.rows)
            for layer in range(self.chooser.layers):
                at = self.chooser.choose(layer, queries[layer][batch], rows) + first
                for mine, full in ((store.k, cache.k), (store.v, cache.v)):
                    chosen = mine[layer, rows.rows, :, : at.shape[2]]
                    cache.backend.search.gather(full[layer], at, chosen)
        for slot, length in zip(slots, lengths, strict=True):
            self._added[slot] = self.chooser.width(length)
            self._passes[slot] = 0
