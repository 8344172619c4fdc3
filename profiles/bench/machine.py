"""What this machine can do at best, measured in turn with what is judged by it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import torch
from torch import Tensor

from magicdec.kernels.linear import make_linear

READ_BYTES = 256 * 2**20
#: Read in turn, so that what is read next left the largest cache long ago: some hold 300 MB.
READ_PLACES = 4
GEMM = (512, 1024, 1024)  # tokens, in, out: prefill's kind of product


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Machine:
    """Reading rate (a large sum) and arithmetic rate (a float32 GEMM) of the CPU.

    A shared machine's rates drift: call `sample` in turn with the work that is measured, and take
    the medians of both.
    """

    def __init__(self) -> None:
        tokens, inputs, outputs = GEMM
        self._places: Iterator[Tensor] = cycle(torch.ones(READ_PLACES, READ_BYTES // 4))
        self._x = torch.randn(tokens, inputs)
        self._linear = make_linear(torch.randn(outputs, inputs))
        self._reads: list[float] = []
        self._gemms: list[float] = []

    def sample(self) -> None:
        self._reads.append(seconds(next(self._places).sum))
        self._gemms.append(seconds(self._multiply))

    def forget(self) -> None:
        """Starts over, for the next thing that is measured."""
        self._reads.clear()
        self._gemms.clear()

    @property
    def read_rate(self) -> float:
        """Bytes per second."""
        return READ_BYTES / statistics.median(self._reads)

    @property
    def gemm_rate(self) -> float:
        """Floating-point operations per second."""
        tokens, inputs, outputs = GEMM
        return 2 * tokens * inputs * outputs / statistics.median(self._gemms)

    @property
    def best(self) -> tuple[float, float]:
        """Bytes and floating-point operations per second in the quickest sample of each."""
        tokens, inputs, outputs = GEMM
        return READ_BYTES / min(self._reads), 2 * tokens * inputs * outputs / min(self._gemms)

    def floor(self, nbytes: int, flops: int) -> float:
        """The least seconds in which so much can be read and computed, both at once."""
        return max(nbytes / self.read_rate, flops / self.gemm_rate)

    def _multiply(self) -> Tensor:
        return self._linear(self._x)
