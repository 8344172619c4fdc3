"""Reads the texts of some rows with a model, several tokens a pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from magicdec.engine.cache.kv import KVCache, KVStore, StoreAccess
from magicdec.engine.config import MAX_GAMMA
from magicdec.engine.model.decoder import Decoder, KVAccess
from magicdec.engine.request import Request
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.views.base import DraftView
from magicdec.engine.views.compact import SelectedView
from magicdec.kernels.pointwise import Entries
from magicdec.kernels.sdpa import Piece, SdpaPlan
from magicdec.kernels.transfer import to_device


@dataclass(frozen=True, slots=True)
class TracedRow:
    """slot: where the cache holds the prompt and, after it, all tokens but the last."""

    slot: int
    request: Request
    tokens: tuple[int, ...]

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.tokens)

    @property
    def fed(self) -> int:
        """Tokens that a pass over the row is fed: each is followed by one that is known."""
        return len(self.tokens) - 1


def traced_rows(
    cache: KVCache, requests: Sequence[Request], outputs: Sequence[Sequence[int]]
) -> list[TracedRow]:
    """Finds the rows of a run in its cache, which must have had a slot for each of them.

    Rows with the same prompt may swap slots. Greedy ones are equal anyway; of sampled ones
    `forced` computes the K/V anew.
    """
    slots = [slot for slot, prompt in enumerate(cache.prompts) if prompt is not None]
    rows = []
    for request, tokens in zip(requests, outputs, strict=True):
        slot = next(slot for slot in slots if _holds(cache, slot, request))
        slots.remove(slot)
        rows.append(TracedRow(slot, request, tuple(tokens)))
    return sorted(rows, key=lambda row: row.slot)  # neighbours can share an attention call


def _holds(cache: KVCache, slot: int, request: Request) -> bool:
    prompt = cache.prompts[slot]
    return prompt is not None and np.array_equal(prompt.tokens, request.tokens)


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


class Unrolled(Reader):
    """Texts over one store, each row in its slot. kept: the prompt's entries, by slot.

    A draft begins at every `block`-th token of a text: a token sees the K/V that the draft itself
    wrote since, and the target's of those before. ring: see `KVSelector.ring`; windowed: whether
    the model's sliding windows apply.
    """

    def __init__(
        self, store: KVStore, kept: Mapping[int, int], block: int, *, budget: int = 0,
        ring: int | None = None, windowed: bool = False,
    ) -> None:  # fmt: skip
        self._store, self._kept, self._block = store, kept, block
        self.width = WIDTH // block * block
        self._ring, self._pinned, self._windowed = ring, budget - (ring or 0), windowed

    def access(self, rows: Sequence[TracedRow], start: int, new: int) -> StoreAccess:
        store, device = self._store, self._store.model.device
        starts = [row.prompt + start for row in rows]
        free = [self._kept[row.slot] + row.fed for row in rows]
        index = to_device([[row.slot for row in rows], free, starts], device)  # [3, n]
        prompts, last = [row.prompt for row in rows], [s + new - 1 for s in starts]
        positions = index[2, :, None] + torch.arange(new, device=device)
        windows = store.model.spec.windows if self._windowed else [None] * len(store.k)
        plans = {window: self._plan(rows, start, new, window) for window in set(windows)}
        return StoreAccess(
            store=store,
            plans=[plans[window] for window in windows],
            rope=store.model.rope.tables(positions, prompts, last),
            place=Entries(index[0], index[1], new),
        )

    def _plan(
        self, rows: Sequence[TracedRow], start: int, new: int, window: int | None
    ) -> SdpaPlan:
        model = self._store.model
        pieces = []
        for at, row in enumerate(rows):
            seen = self._seen(row, start, new, window)  # [T, S]
            mask = torch.zeros(seen.shape, dtype=model.dtype, device=model.device)
            mask.masked_fill_(~seen, -torch.inf)
            mask = mask.repeat_interleave(model.spec.group, dim=0)[None, None]
            keys = slice(0, seen.shape[1])
            pieces.append(Piece(at, at + 1, slice(row.slot, row.slot + 1), keys, mask))
        return SdpaPlan(tuple(pieces))

    def _seen(self, row: TracedRow, start: int, new: int, window: int | None) -> Tensor:
        """Which entries each of the tokens sees: bool [T, S]."""
        kept, device = self._kept[row.slot], self._store.model.device
        query = torch.arange(start, start + new, device=device)[:, None]  # in the text
        begun = query // self._block * self._block  # where in the text its draft began
        entry = torch.arange(kept + row.fed + new, device=device)
        seen = entry < kept + begun
        if self._ring is not None:
            seen &= (entry < self._pinned) | (entry >= kept + begun - self._ring)
        written = entry - kept - row.fed + start  # of the draft's own entries, in the text
        seen |= (entry >= kept + row.fed) & (written >= begun) & (written <= query)
        if window is not None:  # entries are in text order, but for the draft's own
            place = torch.where(entry < kept + row.fed, entry - kept, written)
            seen &= place > query - window
        return seen


def unrolled(
    cache: KVCache, rows: Sequence[TracedRow], selector: KVSelector, budget: int, block: int,
    model: Decoder | None = None,
) -> Unrolled:  # fmt: skip
    """The view of a selector that chooses once, for a draft by `model`, which may have fewer layers
    than the cache. Raises MagicdecError for a selector that breaks its contract."""
    if selector.whole:  # in place: the draft's entries are written beyond the valid ones
        return Unrolled(cache, {row.slot: row.prompt for row in rows}, block, windowed=True)
    ring = selector.ring(budget)
    longest = max(min(budget, row.prompt) + row.fed for row in rows)
    view = _Growing(cache, selector, budget=budget, capacity=longest + WIDTH, model=model)
    kept = {}
    for row in rows:
        cache.lengths[row.slot] = row.prompt
        view.admit(row.slot)
        kept[row.slot] = view.entries(row.slot)
        cache.lengths[row.slot] += row.fed
    told = [row for row in rows if row.fed]
    if told:
        view.commit([row.slot for row in told], [row.fed for row in told])
    return Unrolled(view.store, kept, block, budget=budget, ring=ring)


class _Growing(SelectedView):
    """Never overwrites an entry."""

    def _entry(self, added: int) -> int:
        return added

    def entries(self, slot: int) -> int:
        return self._added[slot]
