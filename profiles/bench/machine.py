"""What this machine can do at best, measured in turn with what is judged by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from magicdec.kernels.linear import make_linear

READ_BYTES = 256 * 2**20
#: Read in turn, so that what is read next left every cache long ago.
LEAST_PLACES = 4
CPUS = Path("/sys/devices/system/cpu")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
GEMM = (512, 1024, 1024)  # tokens, in, out: prefill's kind of product


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def caches(cpus: Path = CPUS) -> int:
    """Bytes of all caches of the CPUs, each counted once; 0 where the system does not say."""
    found: dict[tuple[str, ...], int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index*"):
        try:
            about = [(cache / name).read_text().strip() for name in ("size", "level", "type")]
            shared = (cache / "shared_cpu_list").read_text().strip()
        except OSError:
            continue
        size, unit = about[0][:-1], about[0][-1:]
        if size.isdecimal() and unit in UNITS:
            found[*about[1:], shared] = int(size) * UNITS[unit]
    return sum(found.values())


def places(cached: int) -> int:
    """How many arrays to read in turn, so that the others are twice what the caches hold."""
    return max(LEAST_PLACES, 1 - (-2 * cached // READ_BYTES))


class Machine:
    """Reading rate (a large sum) and arithmetic rate (a float32 GEMM) of the CPU.

    A shared machine's rates drift: call `sample` in turn with the work that is measured, several
    times. The quickest sample counts: whatever else runs can only slow one down, and a floor from a
    slow one is none.
    """

    def __init__(self) -> None:
        tokens, inputs, outputs = GEMM
        self._places: Iterator[Tensor] = cycle(torch.ones(places(caches()), READ_BYTES // 4))
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
        return READ_BYTES / min(self._reads)

    @property
    def gemm_rate(self) -> float:
        """Floating-point operations per second."""
        tokens, inputs, outputs = GEMM
        return 2 * tokens * inputs * outputs / min(self._gemms)

    def floor(self, nbytes: int, flops: int) -> float:
        """The least seconds in which so much can be read and computed, both at once."""
        return max(nbytes / self.read_rate, flops / self.gemm_rate)

    def _multiply(self) -> Tensor:
        return self._linear(self._x)
