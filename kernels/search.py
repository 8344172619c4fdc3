"""Searching a cache for what is worth attending to, in torch. native_search.py: in C++."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from magicdec.kernels.candidates import Candidates


class KeySearch:
    """Works on every device and dtype, and is what faster ones are held to.

    n rows, Hkv KV heads of G query heads each, S = rows.longest.
    """

    def mass(self, queries: Tensor, keys: Tensor, rows: Candidates) -> Tensor:
        """The weight that every position gets from one query per row, summed over a KV head's.

        softmax(q·k / √D) over a row's positions: queries [n, Hkv, G, D], keys [n, Hkv, S, D] ->
        float32 [n, Hkv, S], 0 outside of a row.
        """
        scaled = queries * queries.shape[-1] ** -0.5
        logits = scaled @ keys.to(queries.dtype).transpose(2, 3)  # [n, Hkv, G, S]
        return _mass(logits, rows)

    def code_mass(
        self, tables: Tensor, codes: Tensor, rows: Candidates, *, sinks: int = 0, recent: int = 0
    ) -> Tensor:
        """The same of quantised keys, whose logits are sums of table entries.

        tables: float32 [n, Hkv, m, C, G]; codes: uint8 [n, Hkv, S, m]. A row's first `sinks` and
        last `recent` positions take no part in the softmax and get 0.
        """
        n, heads, parts, count, group = tables.shape
        starts = rows.once(
            ("tables", parts, count),
            lambda: torch.arange(
                0, n * heads * parts * count, count, dtype=torch.int32, device=tables.device
            ).view(n, heads, 1, parts),
        )
        at = (codes + starts).view(-1, parts)
        logits = embedding_bag(at, tables.reshape(-1, group), mode="sum")
        by_query = logits.view(n, heads, -1, group).transpose(2, 3).contiguous()
        return _mass(by_query, rows, sinks, recent)

    def best(
        self, scores: Tensor, rows: Candidates, budget: int, *, sinks: int = 0, recent: int = 0
    ) -> Tensor:
        """The best-scored positions of each row and KV head, sinks and recent ones among them.

        scores: float32 [n, Hkv, S], larger is better; they are overwritten. Returns int64
        [n, Hkv, W] with W = min(budget, S), in no order, of which the first min(budget, length) are
        a row's. When the budget is too small for both, recent positions win.
        """
        width, sinks, recent = limits(rows, budget, sinks, recent)
        everything = rows.positions[:width].expand(*scores.shape[:2], -1)
        if width == rows.longest:
            return everything
        if sinks or recent:
            scores.masked_fill_(
                rows.once(("pin", sinks, recent), lambda: _pinned(rows, sinks, recent)), torch.inf
            )
        if min(rows.lengths) == rows.longest:
            return scores.topk(width, dim=-1, sorted=False).indices
        # Without padding: which of equal scores are taken must not depend on batch mates.
        return torch.stack([
            everything[i] if length <= width
            else scores[i, :, :length].topk(width, dim=-1, sorted=False).indices
            for i, length in enumerate(rows.lengths)
        ])  # fmt: skip

    def gather(self, entries: Tensor, at: Tensor, out: Tensor | None = None) -> Tensor:
        """Chosen entries of a cache, in one block.

        entries [rows, Hkv, S, D]; at [n, Hkv, W] into its first three dimensions, flattened.
        Returns [n, Hkv, W, D], in `out` if given.
        """
        # Whole entries are copied at once; with an index per dimension torch copies numbers.
        flat, shape = entries.flatten(0, 2), (*at.shape, entries.shape[-1])
        if out is None or not out.is_contiguous():
            found = flat.index_select(0, at.flatten()).view(shape)
            return found if out is None else out.copy_(found)
        torch.index_select(flat, 0, at.flatten(), out=out.view(-1, shape[-1]))
        return out


def starts(entries: Tensor, rows: slice) -> Tensor:
    """Where the entries of some rows and of each KV head begin, flattened: [n, Hkv, 1]."""
    count, heads, capacity, _ = entries.shape
    first = torch.arange(count * heads, device=entries.device) * capacity
    return first.view(count, heads, 1)[rows]


def limits(rows: Candidates, budget: int, sinks: int, recent: int) -> tuple[int, int, int]:
    """How many are chosen, and how many of them first and last ones."""
    recent = min(recent, budget)
    return min(budget, rows.longest), min(sinks, budget - recent), recent


def _mass(logits: Tensor, rows: Candidates, sinks: int = 0, recent: int = 0) -> Tensor:
    """logits [n, Hkv, G, S], overwritten."""
    mask = rows.once(("hide", sinks, recent), lambda: _hidden(rows, sinks, recent))
    if mask is None:
        return logits.softmax(dim=-1, dtype=torch.float32).sum(dim=2)
    weights = logits.masked_fill_(mask[:, None], -torch.inf).softmax(dim=-1, dtype=torch.float32)
    return weights.nan_to_num_().sum(dim=2)  # NaN where nothing takes part


def _hidden(rows: Candidates, sinks: int, recent: int) -> Tensor | None:
    """What lies outside of a row, its first and its last positions: [n, 1, S]."""
    if min(rows.lengths) == rows.longest and sinks == recent == 0:
        return None
    mask: Tensor = (rows.positions < sinks) | (rows.positions >= rows.ends - recent)
    return mask


def _pinned(rows: Candidates, sinks: int, recent: int) -> Tensor:
    last = (rows.positions >= rows.ends - recent) & (rows.positions < rows.ends)
    return last | (rows.positions < sinks)  # [n, 1, S]
