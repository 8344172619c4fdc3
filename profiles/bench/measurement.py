"""One line of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """Ratios compare figures of this run only. `at_most`: which side of the goal is good."""

    name: str
    value: float
    unit: str = "×"
    goal: float | None = None
    at_most: bool = False
    note: str = ""
