"""The small operations between a layer's products, in torch. native_pointwise.py: in C++."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu


@dataclass(frozen=True, slots=True)
class Entries:
    """Where n rows' T new tokens go in a cache: `first`, `first` + 1, ... of each row."""

    rows: Tensor  # [n]
    first: Tensor  # [n]
    new: int  # T

    def indices(self) -> tuple[Tensor, Tensor]:
        """Cache row and entry of every token, [n, T] each."""
        steps = torch.arange(self.new, device=self.first.device)
        return self.rows[:, None].expand(-1, self.new), self.first[:, None] + steps


Product = Callable[[Tensor], Tensor]


class Pointwise:
    """Works on every device and dtype, and is what faster ones are held to."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMSNorm (arXiv 1910.07467) of x [..., width], computed in float32 or wider."""
        normed: Tensor = rms_norm(x, weight.shape, weight, eps)
        return normed

    def gate(self, gate_up: Tensor) -> Tensor:
        """SwiGLU's gating (arXiv 2002.05202): [..., 2·width] -> silu(first) · second."""
        gate, up = gate_up.chunk(2, dim=-1)
        gated: Tensor = silu(gate) * up
        return gated

    def apart(
        self, x: Tensor, product: Product, sums: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """x Wᵀ + bias by a product that rounds all tokens on one scale, each as if it were alone.

        x [..., in]; product: [..., in] -> [..., out], by W; sums [out] are of each row of W; bias
        [out]. Each token is brought to 0..1 before and back after:
        W x = span · W ((x - low) / span) + low · W 1.
        """
        low, high = x.aminmax(dim=-1, keepdim=True)
        span = (high - low).clamp_min(torch.finfo(x.dtype).tiny)
        y = product((x - low) / span).mul_(span).add_(low * sums)
        return y if bias is None else y.add_(bias)

    def store(
        self, qk: Tensor, v: Tensor, tables: Tensor, k_cache: Tensor, v_cache: Tensor, at: Entries
    ) -> Tensor:
        """Rotates q and k, writes k and v into one layer's caches, and returns q [n, T, H, D].

        qk [n, T, H + Hkv, D], v [n, T, Hkv, D]; caches [rows, Hkv, S, D] of any dtype; tables:
        cos and sin (RoFormer, arXiv 2104.09864), [2, n, T, D].
        """
        kv_heads = v.shape[2]
        q: Tensor
        q, k = rotate(qk, tables).split((qk.shape[2] - kv_heads, kv_heads), dim=2)
        rows, entries = at.indices()
        k_cache[rows, :, entries] = k.to(k_cache.dtype)
        v_cache[rows, :, entries] = v.to(v_cache.dtype)
        return q


def rotate(x: Tensor, tables: Tensor) -> Tensor:
    """Applies the rotation to x [n, T, heads, D] with tables [2, n, T, D]."""
    cos, sin = tables[0][:, :, None], tables[1][:, :, None]
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
