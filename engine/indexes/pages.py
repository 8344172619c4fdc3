"""Pages of keys, known by their element-wise extremes (Quest, arXiv 2406.10774, section 3)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from magicdec.engine.indexes.base import KeyIndex, KeyShape
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.transfer import to_device

#: (length, budget) -> whole pages to choose, and the entries of the last page.
Kept = Callable[[int, int], tuple[int, int]]


class PageIndex(KeyIndex):
    def __init__(self, shape: KeyShape, page: int, kept: Kept) -> None:
        self._page, self._kept = page, kept
        pages = -(-shape.capacity // page)
        # Maximum and minimum side by side: a page's score is one product.
        self.extremes = torch.zeros(
            shape.layers, shape.rows, shape.kv_heads, pages, 2 * shape.head_dim,
            dtype=shape.dtype, device=shape.device,
        )  # fmt: skip

    def tensors(self) -> list[Tensor]:
        return [self.extremes]

    def extend(self, slot: int, keys: Tensor, first: int) -> None:
        page, length = self._page, keys.shape[2]
        whole = length // page
        start = min(first // page, whole)  # the page that was not full is made anew
        extremes = self.extremes[:, slot]
        if whole > start:
            full = keys[:, :, start * page : whole * page].unflatten(2, (-1, page))
            extremes[:, :, start:whole] = torch.cat((full.amax(3), full.amin(3)), dim=-1)
        if length > whole * page:
            rest = keys[:, :, whole * page :]
            extremes[:, :, whole] = torch.cat((rest.amax(2), rest.amin(2)), dim=-1)

    def scores(self, layer: int, queries: Tensor, rows: Candidates) -> Tensor:
        """Σ over a KV head's query heads of a page's bound: [n, Hkv, pages]."""
        pages = -(-rows.longest // self._page)
        extremes = self.extremes[layer, rows.rows, :, :pages]
        # max(q·min, q·max) takes the maximum where q is positive, else the minimum.
        signed = torch.cat((queries.clamp(min=0), queries.clamp(max=0)), dim=-1).sum(dim=2)
        return (extremes.to(signed.dtype) @ signed[..., None])[..., 0]

    def choose(
        self, layer: int, queries: Tensor, keys: Tensor, rows: Candidates, budget: int
    ) -> Tensor:
        scores = self.scores(layer, queries, rows)
        wholes, last_pages, beyond, width = rows.once(
            (self, budget), lambda: self._plan(rows, budget, scores.shape[2])
        )
        best = int(width - 1) // self._page
        scores.masked_fill_(beyond, -torch.inf)
        pages = scores.topk(best, dim=-1).indices  # best first: a row may count fewer than others
        place = torch.arange(best + 1, device=pages.device)
        pages = torch.where(place == wholes, last_pages, pad(pages, (0, 1)))
        within = torch.arange(self._page, device=pages.device)
        positions = (pages[..., None] * self._page + within).flatten(2)[..., :width]
        return positions.clamp_(max=rows.longest - 1)

    def _plan(
        self, rows: Candidates, budget: int, pages: int
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        """Whole pages of each row and its last page's number, [n, 1, 1]; which pages are the last
        or beyond it, [n, 1, pages]; the entries of the row that chooses most."""
        kept = [self._kept(length, budget) for length in rows.lengths]
        width = max(whole * self._page + last for whole, last in kept)
        last_pages = (rows.ends - 1) // self._page
        beyond = torch.arange(pages, device=rows.device) >= last_pages
        wholes = to_device([whole for whole, _ in kept], rows.device)[:, None, None]
        return wholes, last_pages, beyond, width
