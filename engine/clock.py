"""One clock for all phases: exclusive, stackable, and they sum to wall time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from magicdec.engine.events import PHASES, PhaseTimes

Phase = Literal["load", "prefill", "select", "draft", "verify", "commit", "other"]


@dataclass(frozen=True, slots=True)
class Suspended:
    """Where a clock was stopped."""

    stack: list[Phase]
    spent: dict[str, float]


class Clock:
    """Charges every moment since the last `restart` to exactly one phase.

    A phase entered inside another pauses the outer one (selection inside a draft step counts as
    `select` alone); time outside any phase is `other`. `now` can be faked in tests. `synchronize`
    is called at each phase change, so that asynchronous device work is charged where it was
    launched; leave it out and a CUDA run is not slowed down, but its phases blur.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.perf_counter,
        synchronize: Callable[[], None] | None = None,
    ) -> None:
        self.now = now
        self._synchronize = synchronize
        self.restart()

    def restart(self) -> None:
        self._stack: list[Phase] = ["other"]
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._since = self.now()

    def _charge(self) -> None:
        if self._synchronize is not None:
            self._synchronize()
        now = self.now()
        self._spent[self._stack[-1]] += now - self._since
        self._since = now

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        self._charge()
        self._stack.append(name)
        try:
            yield
        finally:
            self._charge()
            self._stack.pop()

    def suspend(self) -> Suspended:
        """Stops here: what passes until `resume` is charged to nothing. Meanwhile the clock may be
        restarted for something else."""
        self._charge()
        return Suspended(self._stack, self._spent)

    def resume(self, stopped: Suspended) -> None:
        if self._synchronize is not None:
            self._synchronize()
        self._stack, self._spent, self._since = stopped.stack, stopped.spent, self.now()

    def lap(self) -> PhaseTimes:
        """The times since the last `lap` or `restart`."""
        self._charge()
        times = PhaseTimes(**self._spent)
        self._spent = dict.fromkeys(PHASES, 0.0)
        return times
