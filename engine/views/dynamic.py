"""The view of a selector that chooses in every draft step, with the step's own queries.

Drafted tokens are written beyond the valid ones of the full cache, as `WholeView` does. Each layer
then copies what it chose, and the drafted tokens, into a small block and attends to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.cache import KVCache, StoreAccess
from magicdec.engine.clock import Clock
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.trees.tree import Nodes
from magicdec.engine.views.base import DraftView
from magicdec.engine.views.choosing import Chooser, split
from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.search import starts


def block_size(selector: DynamicSelector, length: int, budget: int, gamma: int) -> int:
    """The most entries per row of the block that one layer after the other attends to."""
    return min(selector.most(budget), length) + gamma


class DynamicView(DraftView):
    shares_cache = True

    def __init__(
        self, cache: KVCache, selector: DynamicSelector, *, budget: int, model: Decoder,
        clock: Clock,
    ) -> None:  # fmt: skip
        self.chooser = Chooser(cache, selector, budget=budget, layers=model.spec.layers)
        self.cache, self.clock = cache, clock

    def admit(self, slot: int) -> None:
        with self.clock.phase("select"):
            self.chooser.admit(slot)

    def access(
        self, slots: Sequence[int], ahead: Sequence[int], new: int = 1, nodes: Nodes | None = None
    ) -> DynamicAccess:
        alike = nodes is None and len(set(ahead)) == 1
        assert alike, "trees and cascades draft over static selections only, see `draft_selector`"
        return DynamicAccess(self, slots, ahead, new)

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        with self.clock.phase("select"):
            self.chooser.extend(slots, counts)

    def entries(self, slot: int) -> int:
        """The mean over the layers."""
        length, layers = self.cache.lengths[slot], self.chooser.layers
        dense = min(self.chooser.selector.dense, layers)
        chosen = (layers - dense) * self.chooser.width(length)
        return round((dense * length + chosen) / layers)


class DynamicAccess:
    """The KVAccess of one draft forward."""

    def __init__(
        self, view: DynamicView, slots: Sequence[int], ahead: Sequence[int], new: int
    ) -> None:
        self._view = view
        self._whole: StoreAccess = view.cache.following(slots, new, ahead=ahead)
        lengths = [view.cache.lengths[slot] for slot in slots]
        parts = split(slots, lengths, view.cache.k.device)
        # Every token chooses for itself, and sees those that were drafted before it.
        self._blocks = [
            [_Block(view, rows, batch, ahead[0] + t + 1) for batch, rows in parts]
            for t in range(new)
        ]

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        q = self._whole.write(layer, qk, v)  # [n, T, H, D]
        if layer < self._view.chooser.selector.dense:
            return self._whole.plans[layer].attend(
                q, self._view.cache.k[layer], self._view.cache.v[layer]
            )
        done = [
            torch.cat([block.attend(layer, q[block.batch, t : t + 1]) for block in blocks])
            for t, blocks in enumerate(self._blocks)
        ]
        return torch.cat(done, dim=1)


class _Block:
    """What one token of some rows attends to: `drafted` tokens, itself included, then what it
    chooses, then padding."""

    def __init__(self, view: DynamicView, rows: Candidates, batch: slice, drafted: int) -> None:
        cache, chooser, spec = view.cache, view.chooser, view.cache.model.spec
        self.batch = batch
        self._view, self._rows, self._drafted = view, rows, drafted
        n, device = len(rows.lengths), cache.k.device
        widths = [chooser.width(length) for length in rows.lengths]
        size = drafted + max(widths)
        self._k, self._v = (
            cache.backend.allocate(
                1, n, spec.kv_heads, size, spec.head_dim, dtype=cache.dtype, device=device
            )[0]
            for _ in range(2)
        )
        self._plan = cache.backend.plan(
            AttentionShape(tuple(range(n)), tuple(drafted + w for w in widths), 1),
            query_heads=spec.heads, kv_heads=spec.kv_heads, dtype=cache.model.dtype, device=device,
        )  # fmt: skip
        self._starts = starts(cache.k[0], rows.rows)
        self._at = torch.empty(n, spec.kv_heads, size, dtype=torch.int64, device=device)
        own = rows.ends + torch.arange(drafted, device=device)
        torch.add(own, self._starts, out=self._at[..., :drafted])

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """q: [n, 1, H, D], also of the result."""
        cache = self._view.cache
        with self._view.clock.phase("select"):
            chosen = self._view.chooser.choose(layer, q[:, 0], self._rows)
            torch.add(chosen, self._starts, out=self._at[..., self._drafted :])
            for entries, mine in ((cache.k, self._k), (cache.v, self._v)):
                cache.backend.search.gather(entries[layer], self._at, mine)
        return self._plan.attend(q, self._k, self._v)
