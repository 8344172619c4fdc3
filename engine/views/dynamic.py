"""The view of a selector that chooses in every draft step, with the step's own queries.

Drafted tokens are written beyond the valid ones of the full cache, as `WholeView` does. Each layer
then copies what it chose, and the drafted tokens, into a small block and attends to that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.cache.kv import KVCache, StoreAccess
from magicdec.engine.clock import Clock
from magicdec.engine.errors import PluginError
from magicdec.engine.indexes.base import KeyShape
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.plugins.registry import is_ours
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.trees.tree import Nodes
from magicdec.engine.views.base import DraftView, failures_named
from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.sdpa import runs
from magicdec.kernels.search import starts
from magicdec.kernels.transfer import to_device


class Chooser:
    """Chooses for the first `layers` layers of `cache`."""

    def __init__(
        self, cache: KVCache, selector: DynamicSelector, *, budget: int, layers: int
    ) -> None:
        self.layers, self.selector, self.budget = layers, selector, budget
        self._cache = cache
        self._bounds = None if is_ours(type(selector)) else _Bounds(cache.k.device)
        _, rows, heads, capacity, dim = cache.k.shape
        self.index = selector.index(
            KeyShape(
                layers, rows, heads, capacity, dim, cache.dtype, cache.k.device,
                cache.backend.search,
            )
        )  # fmt: skip

    def admit(self, slot: int) -> None:
        self._judge()
        with failures_named(self.selector):
            self.index.admit(slot, self._keys(slot))

    def extend(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Each row's last `counts` valid tokens are new."""
        self._judge()
        with failures_named(self.selector):
            for slot, count in zip(slots, counts, strict=True):
                self.index.extend(slot, self._keys(slot), self._cache.lengths[slot] - count)

    def width(self, length: int) -> int:
        return self.selector.width(length, self.budget)

    def choose(self, layer: int, q: Tensor, rows: Candidates) -> Tensor:
        """q: [n, H, D], one query per row. Returns positions [n, Hkv, W], see `KeyIndex.choose`."""
        keys = self._cache.k[layer, rows.rows, :, : rows.longest]
        n, heads = keys.shape[:2]
        if rows.longest <= self.budget:
            return rows.positions.expand(n, heads, -1)
        grouped = q.reshape(n, heads, -1, q.shape[-1])
        with failures_named(self.selector):
            chosen = self.index.choose(layer, grouped, keys, rows, self.budget)
        if self._bounds is None:
            return chosen
        widths = [self.width(length) for length in rows.lengths]
        self._refuse(_shape_breach(chosen, [n, heads, max(widths)], keys.device))
        return self._bounds.within(chosen, rows.lengths, widths)

    def _judge(self) -> None:
        """Of what was chosen since; where the device has been waited for anyway."""
        if self._bounds is not None:
            self._refuse(self._bounds.breach())

    def _refuse(self, breach: str) -> None:
        if breach:
            raise PluginError(f"selector {type(self.selector).__name__} returned {breach}")

    def _keys(self, slot: int) -> Tensor:
        return self._cache.k[: self.layers, slot, :, : self._cache.lengths[slot]]


def _shape_breach(chosen: object, wanted: list[int], device: torch.device) -> str:
    if not isinstance(chosen, Tensor):
        return f"{type(chosen).__name__}, not a tensor"
    if list(chosen.shape) != wanted:
        return f"{list(chosen.shape)}, not {wanted}"
    if chosen.dtype is not torch.int64 or chosen.device != device:
        return f"{chosen.dtype} on {chosen.device}, not int64 on {device}"
    return ""


class _Bounds:
    """Holds the positions that a stranger chooses inside its rows: a kernel that reads elsewhere
    ends the process. They are clamped at once and judged later, so that no layer waits for a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._made: tuple[object, Tensor] | None = None  # the limits that were used last
        self._seen: Tensor | None = (
            None  # how far the worst were below 0, less 1, and beyond the last
        )

    def within(self, chosen: Tensor, lengths: Sequence[int], widths: Sequence[int]) -> Tensor:
        """chosen [n, Hkv, W]: in each row the first `widths` are its own, the rest is padding."""
        last = self._last(tuple(lengths), tuple(widths))
        beyond = torch.where(chosen < 0, -1, chosen - last)  # no overflow
        seen = torch.stack((-1 - chosen.amin(), beyond.amax()))
        self._seen = seen if self._seen is None else torch.maximum(self._seen, seen)
        return torch.minimum(chosen.clamp(min=0), last)

    def breach(self) -> str:
        seen, self._seen = self._seen, None
        below, beyond = (-1, 0) if seen is None else seen.tolist()
        if below >= 0:
            return f"position {-1 - below}; positions begin at 0"
        return f"a position {beyond:,} beyond a row's last one" if beyond > 0 else ""

    def _last(self, lengths: tuple[int, ...], widths: tuple[int, ...]) -> Tensor:
        """The last position that may be chosen at each place, [n, 1, W]. Kept from the stranger:
        what is shared could be written to."""
        key = lengths, widths
        if self._made is None or self._made[0] != key:
            place = torch.arange(max(widths), device=self._device)
            own, width = to_device([lengths, widths], self._device)[:, :, None, None]
            self._made = key, torch.where(place < width, own, max(lengths)) - 1
        return self._made[1]


def split(
    slots: Sequence[int], lengths: Sequence[int], device: torch.device
) -> list[tuple[slice, Candidates]]:
    """Rows of a batch, in parts that lie side by side in the cache and are of similar length.

    With each part comes its slice of the batch.
    """
    shape = AttentionShape(tuple(slots), tuple(lengths), 1)
    return [
        (slice(a, b), Candidates(shape.rows[a], shape.lengths[a:b], device)) for a, b in runs(shape)
    ]


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
