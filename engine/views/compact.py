"""A small cache of its own for the draft: selected entries, accepted tokens, scratch.

Keys keep the rotation of their original position, so the order of entries does not matter to
attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.cache.kv import KVCache, KVStore
from magicdec.engine.errors import PluginError
from magicdec.engine.model.decoder import Decoder, KVAccess
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.trees.tree import Nodes
from magicdec.engine.views.base import DraftView, failures_named
from magicdec.kernels.transfer import to_device


class CompactView(DraftView):
    """budget: prompt entries kept per layer and KV head; `store` has room for what comes after."""

    def __init__(self, store: KVStore, selector: KVSelector, budget: int) -> None:
        self.store = store
        self._selector, self._budget = selector, budget
        self._ring = selector.ring(budget)
        self.observed = selector.observed
        self._added = [0] * store.rows  # entries ever added, per slot

    def entries(self, slot: int) -> int:
        added = self._added[slot]
        return added if self._ring is None else min(added, self._budget)

    def _fill(self, slot: int, cache: KVCache, row: int, queries: Sequence[Tensor]) -> None:
        """Selects from the prompt of a row of `cache`. queries: of each layer [H, w, D].

        The row may have grown since; what it has said is committed like anything later.
        """
        length, wanted = cache.prompt_lengths[row], self.observed
        self._added[slot] = min(self._budget, length)
        if length == 0:
            return
        for layer in range(self.store.k.shape[0]):
            keys = cache.k[layer, row, :, :length]  # [Hkv, S, D]
            seen = queries[layer][:, -wanted:] if wanted else queries[layer][:, :0]
            kept = self._select(keys, seen)  # [Hkv, W]
            head = torch.arange(keys.shape[0], device=keys.device)[:, None]
            width = kept.shape[1]
            self.store.k[layer, slot, :, :width] = keys[head, kept]  # [Hkv, W, D]
            self.store.v[layer, slot, :, :width] = cache.v[layer, row][head, kept]

    def _select(self, keys: Tensor, queries: Tensor) -> Tensor:
        """Asks the selector and holds it to its contract: a wrong one must not draft garbage."""
        with failures_named(self._selector):
            kept = self._selector.select(keys, queries, self._budget)
            problem = breach(kept, keys, min(self._budget, keys.shape[1]))
        if problem:
            name = type(self._selector).__name__
            raise PluginError(f"selector {name} returned {problem}")
        return kept

    def _add(
        self, slots: Sequence[int], counts: Sequence[int], source: KVStore, first: Sequence[int]
    ) -> None:
        """Takes over `counts` entries of each slot of `source`, from `first` on."""
        moves: dict[tuple[int, int], int] = {}  # (slot, entry) -> where from; the latest wins
        for slot, count, start in zip(slots, counts, first, strict=True):
            for position in range(start, start + count):
                moves[slot, self._entry(self._added[slot])] = position
                self._added[slot] += 1
        index = to_device(
            [(slot, position, entry) for (slot, entry), position in moves.items()],
            self.store.k.device,
        ).T  # [3, m]
        layers = self.store.k.shape[0]
        for mine, theirs in ((self.store.k, source.k), (self.store.v, source.v)):
            # [m, L, Hkv, D]; read before anything is written
            mine[:, index[0], :, index[2]] = theirs[:layers, index[0], :, index[1]]

    def _entry(self, added: int) -> int:
        """Where the `added`-th entry lies: at the end, or in place of the ring's oldest."""
        if self._ring is None or added < self._budget:
            return added
        pinned = self._budget - self._ring
        return pinned + (added - pinned) % self._ring


def breach(kept: object, keys: Tensor, width: int) -> str:
    """How a selection breaks the contract of `KVSelector.select`; empty when it does not."""
    heads, length, _ = keys.shape
    if not isinstance(kept, Tensor):
        return f"{type(kept).__name__}, not a tensor"
    if kept.dtype is not torch.int64 or kept.shape != (heads, width):
        return f"{kept.dtype} {list(kept.shape)}, not int64 {[heads, width]}"
    if kept.device != keys.device:
        return f"positions on {kept.device}, not on {keys.device}"
    if width and bool((kept[:, 1:] <= kept[:, :-1]).any()):
        return "positions that are not sorted and unique"
    if width and bool((kept[:, 0] < 0).any() | (kept[:, -1] >= length).any()):
        return f"positions outside 0..{length - 1}"
    return ""


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
