"""Copies chosen entries of a cache into one dense block."""

from __future__ import annotations

import torch
from torch import Tensor


def gather(entries: Tensor, at: Tensor, out: Tensor | None = None) -> Tensor:
    """entries [rows, Hkv, S, D]; at [n, Hkv, W] into its first three dimensions, flattened.

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
