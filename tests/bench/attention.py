"""The attention kernel against its roofline, and PyTorch's beside it, at the default model's shape.

Roofline: the larger of K and V's bytes over the measured reading rate, and the arithmetic over the
measured GEMM rate.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from magicdec.kernels.attention import AttentionPlan, AttentionShape
from magicdec.kernels.backends import get_backend
from magicdec.profiles.calibration.measure import Machine, seconds
from tests.bench.measurement import Measurement, over_floor

HEADS, KV_HEADS, DIM = 9, 3, 64
ROWS, CONTEXTS, WIDTHS = (1, 4, 8), (1000, 4000, 7000), (1, 2, 3, 4, 5, 8)
STORED = {"fp32": torch.float32, "bf16": torch.bfloat16}
GOAL, GOAL_CONTEXT, GOAL_ROWS = 1.35, 7000, (1, 8)
ROUNDS = 7
POOL_BYTES = 192 * 2**20  # of K and V that a round goes through, so that no cache holds them

CPU = torch.device("cpu")


class AttentionBench:
    """T = 1 to 8 new tokens of 1 to 8 rows over 1,000 to 7,000 keys."""

    def __init__(
        self,
        rows: Sequence[int] = ROWS,
        contexts: Sequence[int] = CONTEXTS,
        widths: Sequence[int] = WIDTHS,
        rounds: int = ROUNDS,
    ) -> None:
        self._rows, self._contexts, self._widths, self._rounds = rows, contexts, widths, rounds
        self._machine = Machine()

    def run(self) -> Iterator[Measurement]:
        """Yields each figure as it is known."""
        for (stored, dtype), rows, context in product(STORED.items(), self._rows, self._contexts):
            layer_bytes = 2 * rows * KV_HEADS * context * DIM * dtype.itemsize
            layers = max(2, POOL_BYTES // layer_bytes)
            k, v = torch.randn(2, layers, rows, KV_HEADS, context, DIM).to(dtype)
            for width in self._widths:
                yield self._measure(f"{stored}, {rows} × {context:,}, T {width}", k, v, width)

    def _measure(self, case: str, k: Tensor, v: Tensor, width: int) -> Measurement:
        layers, rows, _, context, _ = k.shape
        q = torch.randn(rows, width, HEADS, DIM)
        kernel = get_backend("native", CPU)
        plans = [_plan(kernel.name, rows, context, width)]
        if k.dtype is q.dtype:  # sdpa does not mix dtypes
            plans.append(_plan("sdpa", rows, context, width))
        taken: list[list[float]] = [[] for _ in plans]
        self._machine.forget()
        for _ in range(self._rounds):  # in turn, so that all see the same machine
            self._machine.sample()
            for plan, times in zip(plans, taken, strict=True):
                times.append(seconds(lambda p=plan: _attend(p, q, k, v)) / layers)  # type: ignore[misc]
        nbytes = 2 * k[0].numel() * k.itemsize
        floor = self._machine.floor(nbytes, 4 * rows * width * HEADS * context * DIM)
        mine, *others = (statistics.median(times) for times in taken)
        judged = context == GOAL_CONTEXT and rows in GOAL_ROWS
        return over_floor(
            f"attention / roofline, {case}",
            mine,
            floor,
            goal=GOAL if judged else None,
            others=others,
            note=f"{kernel.name}"
            + "".join(f", sdpa {other / floor:.2f}" for other in others)
            + f"; floor {1e3 * floor:.2f} ms at {self._machine.read_rate / 1e9:.1f} GB/s and "
            f"{self._machine.gemm_rate / 1e9:.0f} GFLOP/s",
        )


def _plan(backend: str, rows: int, context: int, width: int) -> AttentionPlan:
    return get_backend(backend, CPU).plan(
        AttentionShape(tuple(range(rows)), (context,) * rows, width),
        query_heads=HEADS, kv_heads=KV_HEADS, dtype=torch.float32, device=CPU,
    )  # fmt: skip


def _attend(plan: AttentionPlan, q: Tensor, k: Tensor, v: Tensor) -> None:
    for layer in range(len(k)):
        plan.attend(q, k[layer], v[layer])
