"""PyTorch's scaled_dot_product_attention with queries grouped by KV head.

The query heads that share a KV head become extra query rows: [n, H, T, D] is laid out as
[n, Hkv, T·group, D]. K and V are then read once per KV head and never repeated, which is what
decoding a long context costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from magicdec.kernels.attention import AttentionBackend, AttentionPlan, AttentionShape
from magicdec.kernels.transfer import to_device

#: Rows share one call when the shorter ones waste at most this share of the reads.
MAX_PADDING = 0.2


@dataclass(frozen=True, slots=True)
class Piece:
    """Batch rows [first, last) whose cache rows are `cache`, padded to keys [start, stop)."""

    first: int
    last: int
    cache: slice
    keys: slice
    mask: Tensor | None  # [n or 1, 1, T·group, stop - start], None when nothing is hidden


@dataclass(frozen=True, slots=True)
class SdpaPlan(AttentionPlan):
    pieces: tuple[Piece, ...]

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        batch, new, heads, dim = q.shape
        kv_heads = k_cache.shape[1]
        grouped = q.view(batch, new, kv_heads, heads // kv_heads, dim).transpose(1, 2)
        grouped = grouped.reshape(batch, kv_heads, new * (heads // kv_heads), dim)
        # A narrower cache is widened here: correct, but nothing is saved.
        parts = [
            scaled_dot_product_attention(
                grouped[p.first : p.last],
                k_cache[p.cache, :, p.keys].to(q.dtype),
                v_cache[p.cache, :, p.keys].to(q.dtype),
                attn_mask=p.mask,
            )
            for p in self.pieces
        ]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        out = out.view(batch, kv_heads, new, heads // kv_heads, dim).transpose(1, 2)
        return out.reshape(batch, new, heads, dim)


class SdpaAttention(AttentionBackend):
    name = "sdpa"

    def plan(
        self, shape: AttentionShape, *, query_heads: int, kv_heads: int,
        dtype: torch.dtype, device: torch.device,
    ) -> SdpaPlan:  # fmt: skip
        group = query_heads // kv_heads
        pieces = tuple(
            _piece(shape, first, last, group, dtype, device) for first, last in runs(shape)
        )
        return SdpaPlan(pieces)


def runs(shape: AttentionShape) -> list[tuple[int, int]]:
    """Splits the batch into runs of neighbouring cache rows of similar length.

    Only neighbours can share a call without copying K/V, and only similar lengths are worth it.
    """
    runs: list[tuple[int, int]] = []
    first = 0
    for i in range(1, len(shape.rows) + 1):
        if i < len(shape.rows) and shape.rows[i] == shape.rows[i - 1] + 1:
            lengths = shape.lengths[first : i + 1]
            if sum(lengths) >= (1 - MAX_PADDING) * max(lengths) * len(lengths):
                continue
        runs.append((first, i))
        first = i
    return runs


def _piece(
    shape: AttentionShape,
    first: int,
    last: int,
    group: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Piece:
    lengths = shape.lengths[first:last]
    window, tree = shape.window, shape.tree
    tail = shape.new if tree is None else tree.shape[2]
    # With a window, keys that no query of the run sees are not read at all.
    start = 0 if window is None else max(0, min(lengths) - tail + 1 - window)
    stop = max(lengths)
    mask = None
    if tail > 1 or min(lengths) < stop or (window is not None and stop - start > window):
        ends = to_device(lengths, device)[:, None, None]  # [n, 1, 1]
        key = torch.arange(start, stop, device=device)  # [S]
        if tree is None:
            seen = _seen(ends, key, shape.new, window)
        else:
            seen = _seen_in_trees(ends, key, tree[first:last], window)
        mask = torch.zeros(seen.shape, dtype=dtype, device=device)
        mask.masked_fill_(~seen, -torch.inf)
        mask = mask.repeat_interleave(group, dim=1)[:, None]  # row t·group + g of [T·group]
    rows = slice(shape.rows[first], shape.rows[last - 1] + 1)
    return Piece(first, last, rows, slice(start, stop), mask)


def _seen(ends: Tensor, key: Tensor, new: int, window: int | None) -> Tensor:
    """Which keys [S] each row's last `new` tokens see: bool [n, T, S]. ends: lengths [n, 1, 1]."""
    query = ends - new + torch.arange(new, device=key.device)[:, None]  # position, [n, T, 1]
    seen: Tensor = key <= query
    if window is not None:
        seen &= key > query - window
    return seen


def _seen_in_trees(ends: Tensor, key: Tensor, tree: Tensor, window: int | None) -> Tensor:
    """The same for the nodes of trees [n, T, W]."""
    tail = tree.shape[2]
    node = (key - (ends - tail)).expand(-1, tree.shape[1], -1)  # [n, T, S]; before the root: < 0
    seen: Tensor = tree.gather(2, node.clamp(0, tail - 1)) & (node < tail) | (node < 0)
    if window is not None:
        # Counted from the query upwards: itself, its ancestors, then the text before the root.
        seen &= seen.flip(-1).cumsum(-1).flip(-1) <= window
    return seen
