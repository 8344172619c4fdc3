"""How long real runs may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Allowance:
    """So many seconds from now on; None for any number. `now` is a clock that never runs back."""

    seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.now()

    @property
    def left(self) -> float:
        if self.seconds is None:
            return float("inf")
        return max(0.0, self.seconds - (self.now() - self._begun))

    def share(self, parts: int) -> Allowance:
        """An equal part of what is left, beginning now."""
        if self.seconds is None:
            return Allowance(None, self.now)
        return Allowance(self.left / parts, self.now)
