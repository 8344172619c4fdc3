"""How much of the machine other programs took meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil

IDLE = ("idle", "iowait")
COUNTED_TWICE = ("guest", "guest_nice")  # Linux has them in `user` and `nice`, too


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
        no time has passed by the system's clock."""
        busy, total, own = (
            now - before for now, before in zip(self._read(), self._begun, strict=True)
        )
        return min(1.0, max(0.0, busy - own) / total) if total > 0 else None

    def _read(self) -> tuple[float, float, float]:
        """Seconds: busy, all, and of this process."""
        seconds = self._machine()._asdict()
        total = sum(value for name, value in seconds.items() if name not in COUNTED_TWICE)
        own = self._own()
        return total - sum(seconds.get(name, 0.0) for name in IDLE), total, own.user + own.system
