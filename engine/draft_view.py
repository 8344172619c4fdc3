"""What a self-drafting model sees of the cache.

`WholeView` is the full cache itself. `SelectedView` is a small copy: the selected prompt entries,
then the accepted tokens, then scratch for the tokens being drafted. Keys keep the rotation of
their original position, so the order of entries does not matter to attention.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.cache import KVCache, KVStore, StoreAccess
from magicdec.engine.errors import MagicdecError
from magicdec.engine.selectors.base import KVSelector
from magicdec.kernels.transfer import to_device


class DraftView(ABC):
    @abstractmethod
    def admit(self, slot: int) -> None:
        """A row was prefilled into `slot` of the full cache."""

    @abstractmethod
    def access(self, slots: Sequence[int], ahead: int, new: int = 1) -> StoreAccess:
        """For `new` tokens per row, the first of them `ahead` tokens after the row's valid ones."""

    @abstractmethod
    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """The last `counts` tokens of each row's full cache are new and valid."""

    @abstractmethod
    def entries(self, slot: int) -> int:
        """KV entries that the row's next draft step reads besides those drafted in the step."""


class WholeView(DraftView):
    """No copy: drafts are written beyond the valid length, where verification overwrites them."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache

    def admit(self, slot: int) -> None:
        pass

    def access(self, slots: Sequence[int], ahead: int, new: int = 1) -> StoreAccess:
        return self._cache.following(slots, new, ahead=ahead)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        pass

    def entries(self, slot: int) -> int:
        return self._cache.lengths[slot]


class SelectedView(DraftView):
    """budget: prompt entries kept per layer and KV head; capacity: see `view_capacity`."""

    def __init__(self, cache: KVCache, selector: KVSelector, *, budget: int, capacity: int) -> None:
        self._cache, self._selector, self._budget = cache, selector, budget
        self._ring = selector.ring(budget)
        self.store = KVStore(
            cache.model, cache.backend, rows=cache.rows, capacity=capacity, dtype=cache.dtype
        )
        self._added = [0] * cache.rows  # entries ever added, per slot

    def admit(self, slot: int) -> None:
        prompt = self._cache.prompts[slot]
        assert prompt is not None
        length = len(prompt.tokens)
        wanted = self._selector.observed
        for layer in range(self.store.k.shape[0]):
            keys = self._cache.k[layer, slot, :, :length]  # [Hkv, S, D]
            queries = prompt.queries[layer][:, -wanted:] if wanted else prompt.queries[layer][:, :0]
            kept = self._select(keys, queries)
            head = torch.arange(keys.shape[0], device=keys.device)[:, None]
            width = kept.shape[1]
            self.store.k[layer, slot, :, :width] = keys[head, kept]  # [Hkv, W, D]
            self.store.v[layer, slot, :, :width] = self._cache.v[layer, slot][head, kept]
        self._added[slot] = width

    def _select(self, keys: Tensor, queries: Tensor) -> Tensor:
        """Asks the selector and holds it to its contract: a wrong one must not draft garbage."""
        name = type(self._selector).__name__
        try:
            kept = self._selector.select(keys, queries, self._budget)
        except MagicdecError:
            raise
        except Exception as error:  # a stranger's code
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise MagicdecError(f"selector {name} failed: {reason}") from error
        problem = _breach(kept, keys, min(self._budget, keys.shape[1]))
        if problem:
            raise MagicdecError(f"selector {name} returned {problem}")
        return kept

    def entries(self, slot: int) -> int:
        added = self._added[slot]
        return added if self._ring is None else min(added, self._budget)

    def access(self, slots: Sequence[int], ahead: int, new: int = 1) -> StoreAccess:
        cache = self._cache
        return self.store.access(
            slots,
            [self.entries(s) + ahead for s in slots],
            [cache.lengths[s] + ahead for s in slots],
            [cache.prompt_lengths[s] for s in slots],
            new,
            windowed=False,  # entries are not in text order, and the selection is small
        )

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Replaces what the draft wrote by the target's K/V, so that the view never drifts."""
        moves: dict[tuple[int, int], int] = {}  # (slot, entry) -> position; the latest wins
        for slot, count in zip(slots, counts, strict=True):
            for position in range(self._cache.lengths[slot] - count, self._cache.lengths[slot]):
                moves[slot, self._entry(self._added[slot])] = position
                self._added[slot] += 1
        index = to_device(
            [(slot, position, entry) for (slot, entry), position in moves.items()],
            self.store.k.device,
        ).T  # [3, m]
        for mine, full in ((self.store.k, self._cache.k), (self.store.v, self._cache.v)):
            mine[:, index[0], :, index[2]] = full[:, index[0], :, index[1]]  # [m, L, Hkv, D]

    def _entry(self, added: int) -> int:
        """Where the `added`-th entry lies: at the end, or in place of the ring's oldest."""
        if self._ring is None or added < self._budget:
            return added
        pinned = self._budget - self._ring
        return pinned + (added - pinned) % self._ring


def _breach(kept: object, keys: Tensor, width: int) -> str:
    """How a selection breaks the contract of `KVSelector.select`; empty when it does not."""
    heads, length, _ = keys.shape
    if not isinstance(kept, Tensor):
        return f"{type(kept).__name__}, not a tensor"
    if kept.dtype is not torch.int64 or kept.shape != (heads, width):
        return f"{kept.dtype} {list(kept.shape)}, not int64 {[heads, width]}"
    if width and bool((kept[:, 1:] <= kept[:, :-1]).any()):
        return "positions that are not sorted and unique"
    if width and bool((kept[:, 0] < 0).any() | (kept[:, -1] >= length).any()):
        return f"positions outside 0..{length - 1}"
    return ""


def view_capacity(
    selector: KVSelector, *, budget: int, context: int, growth: int, gamma: int
) -> int:
    """Entries per row that a draft view allocates; 0 when it shares the full cache.

    context: the longest prompt; growth: the most tokens a row may gain; gamma: scratch entries.
    Raises ConfigError when the selector cannot work with the budget.
    """
    if selector.whole:
        return 0
    if selector.ring(budget) is None:
        return min(budget, context) + growth + gamma
    return min(budget, context + growth) + gamma


def make_view(
    cache: KVCache, selector: KVSelector, *, budget: int, context: int, growth: int, gamma: int
) -> DraftView:
    if selector.whole:
        return WholeView(cache)
    capacity = view_capacity(selector, budget=budget, context=context, growth=growth, gamma=gamma)
    return SelectedView(cache, selector, budget=budget, capacity=capacity)
