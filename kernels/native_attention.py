"""The C++ kernel for few new queries over long caches on CPU (cpu/attention.cpp).

It reads each byte of K and V once per row and KV head, no padding and no mask, whatever the rows'
lengths; arithmetic is float32 on float32 or bfloat16 storage. A prefill's hundreds of queries are
cut into blocks that pose as rows of their own over the same cache: no mask, and no product with a
key that a block does not see.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from magicdec.kernels.attention import AttentionBackend, AttentionPlan, AttentionShape
from magicdec.kernels.native_build import Problem, load
from magicdec.kernels.native_pointwise import NativePointwise
from magicdec.kernels.native_search import NativeSearch
from magicdec.kernels.sdpa import SdpaAttention

#: New tokens that the kernel takes at once; its work for a block of keys then stays in L2.
BLOCK_QUERIES = 16

STORED = (torch.float32, torch.bfloat16)


class CpuAttention(AttentionBackend):
    """Raises BuildError when the kernel cannot be built or loaded here."""

    name = "native"

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._library = load(progress)
        self.pointwise = NativePointwise(self._library)
        self.search = NativeSearch(self._library)
        self._others = SdpaAttention()

    def plan(
        self, shape: AttentionShape, *, query_heads: int, kv_heads: int,
        dtype: torch.dtype, device: torch.device,
    ) -> AttentionPlan:  # fmt: skip
        def other() -> AttentionPlan:
            return self._others.plan(
                shape, query_heads=query_heads, kv_heads=kv_heads, dtype=dtype, device=device
            )

        return CpuPlan(tuple(_parts(self._library, shape)), other)


class CpuPlan(AttentionPlan):
    """Blocks of queries in turn. other: makes the plan for tensors the kernel does not take."""

    def __init__(self, parts: tuple[_Part, ...], other: Callable[[], AttentionPlan]) -> None:
        self._parts, self._make_other = parts, other
        self._other: AttentionPlan | None = None

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        kind = q.dtype
        queries = q.float() if kind is torch.bfloat16 else q
        if not _taken(queries, k_cache, v_cache):
            self._other = self._other or self._make_other()
            return self._other.attend(q, k_cache, v_cache)
        done = [part.attend(queries, k_cache, v_cache) for part in self._parts]
        out = done[0] if len(done) == 1 else torch.cat(done, dim=1)
        return out if kind is torch.float32 else out.to(kind)


def _parts(library: ctypes.CDLL, shape: AttentionShape) -> Iterator[_Part]:
    """All whole blocks of queries together, then the rest."""
    whole = shape.new // BLOCK_QUERIES * BLOCK_QUERIES
    if whole:
        yield _Part(library, shape, slice(0, whole), BLOCK_QUERIES)
    if whole < shape.new:
        yield _Part(library, shape, slice(whole, shape.new), shape.new - whole)


class _Part:
    """Some queries of every row, in blocks of `width`: their lengths in the kernel's form and its
    workspace, made once for all layers."""

    def __init__(
        self, library: ctypes.CDLL, shape: AttentionShape, queries: slice, width: int
    ) -> None:
        self._library, self._queries, self._width = library, queries, width
        self._window, self._tail = shape.window or 0, width
        self._tree: Tensor | None = None
        ends = range(queries.start + width, queries.stop + 1, width)
        rows = [row for row in shape.rows for _ in ends]
        if shape.tree is None:
            lengths = [length - shape.new + end for length in shape.lengths for end in ends]
        else:  # a node may see any key of the tree that lies before it: each block is given all
            lengths = [length for length in shape.lengths for _ in ends]
            self._tail = shape.tree.shape[2]
            self._tree = shape.tree[:, queries].contiguous()
        integers = ctypes.c_int64 * len(rows)
        self._rows, self._lengths = integers(*rows), integers(*lengths)
        self._layout: object = None  # what the following two are made for
        self._problem = Problem()
        self._workspace: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch, _, heads, dim = q.shape
        blocks = q[:, self._queries].reshape(len(self._rows), self._width, heads, dim)
        # The layers of a forward differ in where their tensors are, not in how they lie.
        layout = (blocks.stride(), k.shape, k.stride(), k.dtype, v.stride())
        if layout != self._layout:
            self._prepare(blocks, k, v)
            self._layout = layout
        out = blocks.new_empty(blocks.shape, dtype=torch.float32)
        self._library.magicdec_attention(
            self._problem, blocks.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        )
        return out.view(batch, -1, heads, dim)

    def _prepare(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        rows, new, heads, dim = q.shape
        strides = ctypes.c_int64 * 3
        self._problem = Problem(
            rows, heads, k.shape[1], new, dim, self._window, self._tail,
            None if self._tree is None else self._tree.data_ptr(), self._rows, self._lengths,
            strides(*q.stride()[:3]), strides(*k.stride()[:3]), strides(*v.stride()[:3]),
            k.dtype is torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        size = self._library.magicdec_attention_workspace(self._problem)
        self._workspace = torch.empty(size, dtype=torch.uint8, device="cpu")
        self._problem.workspace = self._workspace.data_ptr()


def _taken(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether the kernel takes these; it moves eight neighbouring dimensions at a time."""
    return (
        q.shape[-1] % 8 == 0
        and q.dtype is torch.float32
        and k.dtype in STORED
        and k.dtype is v.dtype
        and all(t.stride(-1) == 1 for t in (q, k, v))
    )
