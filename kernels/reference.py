"""Attention written out: one row at a time, K/V repeated, scores and softmax in float32.

Slow and easy to read; every fast backend is tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from magicdec.kernels.attention import AttentionBackend, AttentionPlan, AttentionShape


@dataclass(frozen=True, slots=True)
class ReferencePlan(AttentionPlan):
    shape: AttentionShape

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        out = [
            self._row(b, q[b], k_cache[row, :, :length], v_cache[row, :, :length])
            for b, (row, length) in enumerate(zip(self.shape.rows, self.shape.lengths, strict=True))
        ]
        return torch.stack(out)

    def _row(self, b: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Of batch row b: q [T, H, D]; k, v [Hkv, S, D] -> [T, H, D]."""
        new, heads, dim = q.shape
        group = heads // k.shape[0]
        k = k.repeat_interleave(group, dim=0).float()  # [H, S, D]
        v = v.repeat_interleave(group, dim=0).float()
        scores = torch.einsum("thd,hsd->hts", q.float(), k) * dim**-0.5
        window, tree = self.shape.window, self.shape.tree
        if tree is None:
            seen = visible(new, k.shape[1], window)
        else:
            seen = visible_in_tree(tree[b], k.shape[1], window)
        scores = scores.masked_fill(~seen, -torch.inf)
        out: Tensor = torch.einsum("hts,hsd->thd", scores.softmax(dim=-1), v)
        return out.to(q.dtype)


def visible(new: int, length: int, window: int | None, device: object = None) -> Tensor:
    """Which of `length` keys each of the `new` last queries sees: bool [T, S]."""
    key = torch.arange(length, device=device)  # type: ignore[call-overload]
    query = torch.arange(length - new, length, device=device)[:, None]  # type: ignore[call-overload]
    mask: Tensor = key <= query
    if window is not None:
        mask &= key > query - window
    return mask


def visible_in_tree(tree: Tensor, length: int, window: int | None) -> Tensor:
    """Which of `length` keys each node of one row's tree [T, W] sees: bool [T, S]."""
    new, tail = tree.shape
    mask = torch.ones(new, length, dtype=torch.bool)
    mask[:, length - tail :] = tree
    if window is not None:
        # Counted from the query upwards: its ancestors, then the text before the root.
        above = mask.flip(-1).cumsum(-1).flip(-1)  # [T, S], 1 for the query itself
        mask &= above <= window
    return mask


class ReferenceAttention(AttentionBackend):
    name = "reference"

    def plan(
        self, shape: AttentionShape, *, query_heads: int, kv_heads: int,
        dtype: torch.dtype, device: torch.device,
    ) -> ReferencePlan:  # fmt: skip
        return ReferencePlan(shape)
