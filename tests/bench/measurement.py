"""One line of the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measurement:
    """Ratios compare figures of this run only. `at_most`: which side of the goal is good.

    error: why there is no figure, where something went wrong with measuring it.
    """

    name: str
    value: float | None
    unit: str = "×"
    goal: float | None = None
    at_most: bool = False
    note: str = ""
    error: str = ""

    @property
    def met(self) -> bool:
        """Whether the goal, which it has, is reached."""
        assert self.goal is not None
        if self.value is None:
            return False
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def over_floor(
    name: str, seconds: float, floor: float, *, goal: float | None, note: str,
    others: Sequence[float] = (),
) -> Measurement:  # fmt: skip
    """How many times its floor something took. Nothing takes less: whoever seems to was measured on
    another machine than the floor was, and so is no figure. others: what else did the same work."""
    error = below(min((seconds, *others)), floor)
    if error:  # the note's ratios are none, either
        return Measurement(name, None, goal=goal, at_most=True, error=error)
    return Measurement(name, seconds / floor, goal=goal, at_most=True, note=note)


def below(seconds: float, floor: float) -> str:
    """Why something that took so long is no measurement; empty where it took its floor or more."""
    if seconds >= floor:
        return ""
    return (
        f"{1e3 * seconds:.3g} ms is below the floor, {1e3 * floor:.3g} ms: the machine was "
        "disturbed while one of them was measured"
    )
