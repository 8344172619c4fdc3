"""Measures how much of the machine other programs take."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil

IDLE = ("idle", "iowait")
COUNTED_TWICE = ("guest", "guest_nice")  # Linux has them in `user` and `nice`, too
LEAST_S = 0.5  # of all CPUs together: the system counts in hundredths, and less says little


class CpuTimes(NamedTuple):
    """Seconds, as psutil has them."""

    user: float
    system: float


def with_parent() -> Callable[[], CpuTimes]:
    """What this process and the one that started it take: the app's engine, and the app."""
    processes = [psutil.Process()]
    with contextlib.suppress(psutil.Error):
        processes.append(psutil.Process(os.getppid()))

    def times() -> CpuTimes:
        found = []
        for process in processes:
            with contextlib.suppress(psutil.Error):  # one that has ended takes nothing any more
                found.append(process.cpu_times())
        return CpuTimes(sum(t.user for t in found), sum(t.system for t in found))

    return times


class OthersLoad:
    """Since it was made. The sources can be faked in tests."""

    def __init__(
        self,
        machine: Callable[[], Any] = psutil.cpu_times,
        own: Callable[[], Any] | None = None,
    ) -> None:
        self._machine, self._own = machine, own or psutil.Process().cpu_times
        self._begun = self._read()

    @property
    def share(self) -> float | None:
        """Of the time of all CPUs; what a hypervisor gave to somebody else counts, too. None where
        too little time has passed to tell."""
        busy, total, own = (
            now - before for now, before in zip(self._read(), self._begun, strict=True)
        )
        return min(1.0, max(0.0, busy - own) / total) if total >= LEAST_S else None

    def _read(self) -> tuple[float, float, float]:
        """Seconds: busy, all, and of this process."""
        seconds = self._machine()._asdict()
        total = sum(value for name, value in seconds.items() if name not in COUNTED_TWICE)
        own = self._own()
        return total - sum(seconds.get(name, 0.0) for name in IDLE), total, own.user + own.system
