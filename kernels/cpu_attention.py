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
        self._problem: Problem | None = None
        self._made_for: object = None
        self._workspace: Tensor | None = None

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        if not _taken(q, k_cache, v_cache):
            self._other = self._other or self._make_other()
            return self._other.attend(q, k_cache, v_cache)
        queries = q.float()  # no copy when it is already
        problem = self._problem_of(queries, k_cache, v_cache)
        out = torch.empty(q.shape, dtype=torch.float32)
        self._library.magicdec_attention(
            problem, queries.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr(), out.data_ptr()
        )
        return out.to(q.dtype)

    def _problem_of(self, q: Tensor, k: Tensor, v: Tensor) -> Problem:
        """The layers of a forward differ in where their tensors are, not in how they lie."""
        made_for = (q.shape, q.stride(), k.shape, k.stride(), v.stride(), k.dtype)
        if self._problem is None or made_for != self._made_for:
            batch, new, heads, dim = q.shape
            strides = ctypes.c_int64 * 3
            self._problem = Problem(
                batch, heads, k.shape[1], new, dim, self._shape.window or 0,
                self._rows, self._lengths,
                strides(*q.stride()[:3]), strides(*k.stride()[:3]), strides(*v.stride()[:3]),
                k.dtype is torch.bfloat16, torch.get_num_threads(),
            )  # fmt: skip
            size = self._library.magicdec_attention_workspace(self._problem)
            self._workspace = torch.empty(size, dtype=torch.uint8)
            self._problem.workspace = self._workspace.data_ptr()
            self._made_for = made_for
        return self._problem


def _taken(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel takes these; it moves eight neighbouring dimensions at a time."""
    return (
        q.shape[-1] % 8 == 0
        and q.dtype in STORED
        and k.dtype in STORED
        and k.dtype is v.dtype
        and all(t.stride(-1) == 1 for t in (q, k, v))
    )
