"""What a survey found about a drafter, as a prediction needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """A drafter's acceptance for one γ, row by row on the same text.

    tokens [rows]: what each row's steps emit; steps [rows]: how many it takes, expected;
    length: the mean acceptance length, Ω; interval: 95% of it over rows, None for a single row;
    per_position [γ]: shares of steps, unconditional; drafting: the share of a row's steps that
    draft at all, which only lookup leaves below 1. Then `length` counts the others, too.
    """

    gamma: int
    tokens: tuple[int, ...]
    steps: tuple[float, ...]
    length: float
    interval: tuple[float, float] | None = None
    per_position: tuple[float, ...] = ()
    drafting: float = 1.0

    def scaled(self, length: float) -> Sequence[float]:
        """Steps by row if the mean acceptance length were `length`."""
        return [steps * self.length / length for steps in self.steps]
