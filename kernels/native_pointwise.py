"""The small operations in C++ (cpu/pointwise.cpp): float32 on CPU, torch's for anything else."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from magicdec.kernels.native_build import Storing
from magicdec.kernels.pointwise import Entries, Pointwise, Product

KEPT_NUMBERS = 1 << 16  # of a shape that is kept: passes of a few tokens


class NativePointwise(Pointwise):
    """A token's results are the same bits whatever else is in the batch."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._rooms: dict[torch.Size, tuple[Tensor, Tensor]] = {}

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        width = weight.shape[-1]
        if not _dense(x):
            return super().norm(x, weight, eps)
        out = torch.empty_like(x)
        self._library.magicdec_rms_norm(
            x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // width, width, eps,
            torch.get_num_threads(),
        )  # fmt: skip
        return out

    def gate(self, gate_up: Tensor) -> Tensor:
        if not _dense(gate_up):
            return super().gate(gate_up)
        width = gate_up.shape[-1] // 2
        out = gate_up.new_empty(*gate_up.shape[:-1], width)
        self._library.magicdec_gate(
            gate_up.data_ptr(), out.data_ptr(), gate_up.numel() // (2 * width), width,
            torch.get_num_threads(),
        )  # fmt: skip
        return out

    def apart(
        self, x: Tensor, product: Product, sums: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        if not (_dense(x) and _dense(sums) and (bias is None or _dense(bias))):
            return super().apart(x, product, sums, bias)
        spread, ranges = self._room(x)
        tokens, threads = ranges.shape[0], torch.get_num_threads()
        self._library.magicdec_spread(
            x.data_ptr(), spread.data_ptr(), ranges.data_ptr(), tokens, x.shape[-1], threads
        )
        y = product(spread)
        self._library.magicdec_restore(
            y.data_ptr(), ranges.data_ptr(), sums.data_ptr(),
            None if bias is None else bias.data_ptr(), tokens, y.shape[-1], threads,
        )  # fmt: skip
        return y

    def _room(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Like x, and two numbers a token. Decode's few shapes are kept: making them anew would
        take as long as the arithmetic."""
        found = self._rooms.get(x.shape)
        if found is None:
            found = torch.empty_like(x), x.new_empty(x.numel() // x.shape[-1], 2)
            if x.numel() <= KEPT_NUMBERS:
                self._rooms[x.shape] = found
        return found

    def store(
        self, qk: Tensor, v: Tensor, tables: Tensor, k_cache: Tensor, v_cache: Tensor, at: Entries
    ) -> Tensor:
        if not _storable(qk, v, tables, k_cache, v_cache):
            return super().store(qk, v, tables, k_cache, v_cache, at)
        batch, new, both, dim = qk.shape
        kv_heads = v.shape[2]
        two, three = ctypes.c_int64 * 2, ctypes.c_int64 * 3
        problem = Storing(
            batch, new, both - kv_heads, kv_heads, dim,
            two(*qk.stride()[:2]), two(*v.stride()[:2]),
            three(*k_cache.stride()[:3]), three(*v_cache.stride()[:3]),
            k_cache.dtype is torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        q = qk.new_empty(batch, new, both - kv_heads, dim)
        self._library.magicdec_store(
            problem, qk.data_ptr(), v.data_ptr(), tables.data_ptr(), q.data_ptr(),
            k_cache.data_ptr(), v_cache.data_ptr(), at.rows.data_ptr(), at.first.data_ptr(),
        )  # fmt: skip
        return q


def _dense(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_contiguous()


def _storable(qk: Tensor, v: Tensor, tables: Tensor, k_cache: Tensor, v_cache: Tensor) -> bool:
    return (
        _dense(tables)
        and all(x.dtype is torch.float32 and x.stride()[2:] == (x.shape[3], 1) for x in (qk, v))
        and k_cache.dtype in (torch.float32, torch.bfloat16)
        and k_cache.dtype is v_cache.dtype
        and k_cache.stride(-1) == v_cache.stride(-1) == 1
    )
