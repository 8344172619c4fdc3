"""What a draft sees at every token of a text, for all tokens at once.

A view rolls: what enters replaces what is oldest. Here everything stays, in the order in which it
entered: the prompt's selected entries, the target's own K/V of the text, then room for what the
draft writes. A mask says what of that a token's draft step would have found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from magicdec.engine.cache import KVCache, KVStore, StoreAccess
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.views.selected import SelectedView
from magicdec.kernels.pointwise import Entries
from magicdec.kernels.sdpa import Piece, SdpaPlan
from magicdec.kernels.transfer import to_device
from magicdec.profiles.survey.reading import WIDTH, Reader
from magicdec.profiles.survey.trace import TracedRow


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
