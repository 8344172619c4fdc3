"""The C++ kernel for few new queries over long caches on CPU (cpu/attention.cpp).

It reads each byte of K and V once per row and KV head, no padding and no mask, whatever the rows'
lengths; arithmetic is float32 on float32 or bfloat16 storage. Many queries at once, which is
prefill, are a matter of arithmetic, and PyTorch's kernel does those.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from magicdec.kernels.attention import AttentionBackend, AttentionPlan, AttentionShape
from magicdec.kernels.native import Problem, load
from magicdec.kernels.sdpa import SdpaAttention

#: New tokens per row up to which the kernel is used.
MAX_NEW = 16

STORED = (torch.float32, torch.bfloat16)


class CpuAttention(AttentionBackend):
    """Raises BuildError when the kernel cannot be built or loaded here."""

    name = "native"

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._library = load(progress)
        self._others = SdpaAttention()

    def plan(
        self, shape: AttentionShape, *, query_heads: int, kv_heads: int,
        dtype: torch.dtype, device: torch.device,
    ) -> AttentionPlan:  # fmt: skip
        def other() -> AttentionPlan:
            return self._others.plan(
                shape, query_heads=query_heads, kv_heads=kv_heads, dtype=dtype, device=device
            )

        if shape.new > MAX_NEW:
            return other()
        return CpuPlan(self._library, shape, other)


class CpuPlan(AttentionPlan):
    """The lengths in the kernel's form, and its workspace, made once for all layers.

    other: makes the plan for tensors that the kernel does not take.
    """

    def __init__(
        self, library: ctypes.CDLL, shape: AttentionShape, other: Callable[[], AttentionPlan]
    ) -> None:
        self._library, self._shape, self._make_other = library, shape, other
        self._other: AttentionPlan | None = None
        integers = ctypes.c_int64 * len(shape.rows)
        self._rows, self._lengths = integers(*shape.rows), integers(*shape.lengths)
        self._layout: object = None  # what the following are made for
        self._problem: Problem | None = None  # None: `other` does it
        self._workspace: Tensor | None = None

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        kind = q.dtype
        if kind is torch.bfloat16:
            q = q.float()
        # The layers of a forward differ in where their tensors are, not in how they lie.
        layout = (
            q.shape, q.stride(), kind, k_cache.shape, k_cache.stride(), k_cache.dtype,
            v_cache.stride(), v_cache.dtype,
        )  # fmt: skip
        if layout != self._layout:
            self._prepare(q, k_cache, v_cache)
            self._layout = layout
        if self._problem is None:
            self._other = self._other or self._make_other()
            return self._other.attend(q.to(kind), k_cache, v_cache)
        out = torch.empty(q.shape, dtype=torch.float32)
        self._library.magicdec_attention(
            self._problem, q.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr(), out.data_ptr()
        )
        return out if kind is torch.float32 else out.to(kind)

    def _prepare(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        self._problem = None
        if not _taken(q, k, v):
            return
        batch, new, heads, dim = q.shape
        strides = ctypes.c_int64 * 3
        problem = Problem(
            batch, heads, k.shape[1], new, dim, self._shape.window or 0,
            self._rows, self._lengths,
            strides(*q.stride()[:3]), strides(*k.stride()[:3]), strides(*v.stride()[:3]),
            k.dtype is torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        size = self._library.magicdec_attention_workspace(problem)
        self._workspace = torch.empty(size, dtype=torch.uint8)
        problem.workspace = self._workspace.data_ptr()
        self._problem = problem


def _taken(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel takes these; it moves eight neighbouring dimensions at a time."""
    return (
        q.shape[-1] % 8 == 0
        and q.dtype is torch.float32
        and k.dtype in STORED
        and k.dtype is v.dtype
        and all(t.stride(-1) == 1 for t in (q, k, v))
    )
