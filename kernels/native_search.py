"""The search in C++ (cpu/mass.cpp, cpu/best.cpp): float32 and bfloat16 keys on CPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from magicdec.kernels.candidates import Candidates
from magicdec.kernels.native_build import Problem
from magicdec.kernels.search import KeySearch, limits

LANES = 8
STORED = (torch.float32, torch.bfloat16)


class NativeSearch(KeySearch):
    """A row's results are the same bits whatever else is in the batch, and of equal scores the
    last positions are chosen: quantised keys are often equal, and later ones matter more."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def mass(self, queries: Tensor, keys: Tensor, rows: Candidates) -> Tensor:
        dim = queries.shape[-1]
        if keys.dtype not in STORED or keys.stride(-1) != 1 or dim % LANES:
            return super().mass(queries, keys, rows)
        asked = queries.float().contiguous()
        work = self._work(rows, queries.shape[2], keys)
        out = asked.new_empty(keys.shape[:3])
        self._library.magicdec_key_mass(
            work.problem, asked.data_ptr(), keys.data_ptr(), out.data_ptr(), rows.longest
        )
        return out

    def code_mass(
        self, tables: Tensor, codes: Tensor, rows: Candidates, *, sinks: int = 0, recent: int = 0
    ) -> Tensor:
        group = tables.shape[4]
        padded = pad(tables, (0, -group % LANES)).contiguous()
        work = self._work(rows, group, codes)
        out = tables.new_empty(codes.shape[:3])
        self._library.magicdec_code_mass(
            work.problem, padded.data_ptr(), codes.data_ptr(), tables.shape[3], sinks, recent,
            out.data_ptr(), rows.longest,
        )  # fmt: skip
        return out

    def best(
        self, scores: Tensor, rows: Candidates, budget: int, *, sinks: int = 0, recent: int = 0
    ) -> Tensor:
        width, sinks, recent = limits(rows, budget, sinks, recent)
        if scores.dtype is not torch.float32 or not scores.is_contiguous():
            return super().best(scores, rows, budget, sinks=sinks, recent=recent)
        n, heads, longest = scores.shape
        out = scores.new_empty(n, heads, width, dtype=torch.int64)
        self._library.magicdec_best(
            scores.data_ptr(), out.data_ptr(), rows.ends.data_ptr(), n, heads, longest, width,
            sinks, recent, torch.get_num_threads(),
        )  # fmt: skip
        return out

    def gather(self, entries: Tensor, at: Tensor, out: Tensor | None = None) -> Tensor:
        n, heads, width = at.shape
        dim = entries.shape[-1]
        out = entries.new_empty(n, heads, width, dim) if out is None else out
        dense = entries.is_contiguous() and at.is_contiguous()
        if not dense or out.stride()[2:] != (dim, 1) or out.dtype is not entries.dtype:
            return super().gather(entries, at, out)
        size = entries.itemsize
        self._library.magicdec_gather(
            entries.data_ptr(), out.data_ptr(), at.data_ptr(), n, heads, width, dim * size,
            out.stride(0) * size, out.stride(1) * size, torch.get_num_threads(),
        )  # fmt: skip
        return out

    def _work(self, rows: Candidates, group: int, keys: Tensor) -> _Work:
        """The same for all layers, which differ in where their tensors are, not in how they lie."""
        kind = ("work", group, keys.shape, keys.stride(), keys.dtype)
        return rows.once(kind, lambda: self._prepare(rows, group, keys))

    def _prepare(self, rows: Candidates, group: int, keys: Tensor) -> _Work:
        n, heads, _, dim = keys.shape
        integers, strides = ctypes.c_int64 * n, ctypes.c_int64 * 3
        query = (heads * group * dim, heads * group * dim, dim)  # batch, T = 1, head
        problem = Problem(
            n, heads * group, heads, 1, dim, 0, 1, None, integers(*range(n)),
            integers(*rows.lengths), strides(*query), strides(*keys.stride()[:3]), strides(),
            keys.dtype is torch.bfloat16, torch.get_num_threads(),
        )  # fmt: skip
        size = self._library.magicdec_mass_workspace(problem)
        workspace = torch.empty(size, dtype=torch.uint8, device=keys.device)
        problem.workspace = workspace.data_ptr()
        return _Work(problem, workspace)


@dataclass(frozen=True, slots=True)
class _Work:
    problem: Problem
    workspace: Tensor  # which the problem points into
