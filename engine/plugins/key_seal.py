"""Sums over the keys of a cache's rows, by which a write that nobody announced is noticed.

A stranger's index is shown the live keys. Entries of a row are only ever appended, so a sum that
grows with them is the same as one over all of them, as long as nobody else writes there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.errors import AlteredError
from magicdec.engine.plugins.watched_index import BITS, altered


class KeySeal:
    """k: the keys of a cache, [L, rows, Hkv, capacity, D]; selector: who is shown them."""

    def __init__(self, k: Tensor, selector: str) -> None:
        self._k, self._selector = k.view(BITS[k.element_size()]), selector
        noise = torch.Generator().manual_seed(0)  # so that entries cannot be swapped either
        shape = (k.shape[2], 1, k.shape[4])
        self._mix = torch.randint(-(2**62), 2**62, shape, generator=noise).to(k.device) | 1
        self._rows: dict[int, tuple[int, Tensor]] = {}  # by slot: entries, and their sum

    def admit(self, slot: int, length: int) -> None:
        """A row was prefilled into the slot."""
        self._rows[slot] = length, self._sum(slot, 0, length)

    def forget(self, slot: int) -> None:
        """What comes into the slot now is another row's."""
        self._rows.pop(slot, None)

    def extend(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        for slot, count in zip(slots, counts, strict=True):
            if slot in self._rows:
                length, total = self._rows[slot]
                more = self._sum(slot, length, length + count)
                self._rows[slot] = length + count, total + more

    def check(self, slot: int) -> None:
        """Raises AlteredError where the row is not as it was written."""
        if self._broken(slot):
            raise AlteredError(altered(self._selector))

    def broken(self) -> list[int]:
        """Slots whose rows are not as they were written."""
        return [slot for slot in self._rows if self._broken(slot)]

    def _broken(self, slot: int) -> bool:
        length, total = self._rows[slot]
        return bool(self._sum(slot, 0, length) != total)

    def _sum(self, slot: int, start: int, stop: int) -> Tensor:
        place = 2 * torch.arange(start, stop, device=self._k.device)[:, None] + 1
        weights = self._mix * place  # [Hkv, S, D], int64 that wraps
        total = weights.new_zeros(())
        for layer in self._k:
            total = total * 31 + (layer[slot, :, start:stop] * weights).sum()
        return total
