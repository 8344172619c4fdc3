"""The search for KV entries against its roofline, and PyTorch's beside it, at the default model's
shape.

Roofline: the keys' bytes over the measured reading rate. A search through codes is judged by the
same: it has to be well below.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from magicdec.kernels.backends import get_backend
from magicdec.kernels.candidates import Candidates
from magicdec.kernels.search import KeySearch
from magicdec.profiles.calibration.measure import Machine, seconds
from tests.bench.attention import CPU, DIM, HEADS, KV_HEADS, POOL_BYTES, STORED
from tests.bench.measurement import Measurement, over_floor

ROWS, CONTEXT, BUDGET = 4, 4000, 256
PARTS, CENTROIDS = 2, 64  # pqcache's defaults
GOAL = 1.3
ROUNDS = 7

Choose = Callable[[KeySearch, int], Tensor]  # for a layer


class SearchBench:
    """A draft step's choice of 256 entries among 4 × 4,000, with the keys and with their codes."""

    def __init__(self, rows: int = ROWS, context: int = CONTEXT, rounds: int = ROUNDS) -> None:
        self._rows = Candidates(0, (context,) * rows, CPU)
        self._rounds, self._machine = rounds, Machine()

    def run(self) -> Iterator[Measurement]:
        """Yields each figure as it is known."""
        rows, n, context = self._rows, len(self._rows.lengths), self._rows.longest
        queries = torch.randn(n, KV_HEADS, HEADS // KV_HEADS, DIM)
        for stored, dtype in STORED.items():
            nbytes = n * KV_HEADS * context * DIM * dtype.itemsize
            keys = torch.randn(max(2, POOL_BYTES // nbytes), n, KV_HEADS, context, DIM).to(dtype)
            yield self._measure(
                f"keys, {stored}", nbytes, len(keys),
                lambda s, i, k=keys: s.best(s.mass(queries, k[i], rows), rows, BUDGET),  # type: ignore[misc]
                goal=GOAL if dtype is torch.float32 else None,
            )  # fmt: skip
        tables = torch.randn(n, KV_HEADS, PARTS, CENTROIDS, HEADS // KV_HEADS)
        codes = torch.randint(CENTROIDS, (len(keys), n, KV_HEADS, context, PARTS)).byte()
        yield self._measure(
            "codes of fp32", n * KV_HEADS * context * DIM * 4, len(codes),
            lambda s, i: s.best(s.code_mass(tables, codes[i], rows), rows, BUDGET), codes=True,
        )  # fmt: skip

    def _measure(
        self, what: str, nbytes: int, layers: int, choose: Choose, goal: float | None = None,
        *, codes: bool = False,
    ) -> Measurement:  # fmt: skip
        """codes: that stand for the keys, and are fewer bytes: their reading is no floor."""
        searches = (get_backend("native", CPU).search, KeySearch())
        taken: list[list[float]] = [[] for _ in searches]
        self._machine.forget()
        for _ in range(self._rounds):  # in turn, so that all see the same machine
            self._machine.sample()
            for search, times in zip(searches, taken, strict=True):
                once = seconds(lambda s=search: [choose(s, i) for i in range(layers)])  # type: ignore[misc]
                times.append(once / layers)
        floor = nbytes / self._machine.read_rate
        native, by_torch = (statistics.median(times) for times in taken)
        n, context = len(self._rows.lengths), self._rows.longest
        name = f"search / reading keys, {n} × {context:,}, {what}"
        note = (
            f"torch {by_torch / floor:.2f}; reading {1e3 * floor:.2f} ms a layer at "
            f"{self._machine.read_rate / 1e9:.1f} GB/s"
        )
        if codes:
            return Measurement(name, native / floor, at_most=True, note=note)
        return over_floor(name, native, floor, goal=goal, others=[by_torch], note=note)
