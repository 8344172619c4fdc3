"""Tells whether the machine was steady while plain and speculative runs were compared.

What a step should take is known from its likes: those of the same run with as many rows and draft
tokens, on the line that they follow as rows grow. What is left of a time, divided by that, is the
machine's doing. Of each turn it gives the pace of either run, and with it the speedup that this
turn alone would have shown: their range says how far the figure can be trusted. It says nothing
about the text, which has easy and hard passages in every run alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from magicdec.engine.events import Event, StepFinished

#: A verify pass (of plain decoding: a step) at the 90th percentile ÷ the median one. Of 44 runs on
#: an idle machine of 2 cores (135M parameters, 1 to 4 rows of 1,000 and 2,000 tokens, 1 and 2
#: threads) the largest was 1.12, also where a single step took 1.9 times the median one.
QUIET_SCATTER = 1.25
#: What other programs may take of all CPUs; on that machine at rest it was .02 at most.
QUIET_OTHERS = 0.1


@dataclass(frozen=True, slots=True)
class Steadiness:
    """None is what there were too few steps or turns for.

    turns: that both runs had, and steps in each; 1: one ran after the other. paces: of each turn
    the pace of the plain run ÷ that of the speculative one, as seconds, 1 being the usual.
    scatter: see QUIET_SCATTER. others: the share of all CPUs that other programs took.
    """

    turns: int
    paces: tuple[float, ...]
    plain_scatter: float | None
    speculative_scatter: float | None
    others: float | None

    def speedups(self, speedup: float) -> tuple[float, float] | None:
        """The least and the most of single turns, where the whole run gave `speedup`."""
        if len(self.paces) < 2:
            return None
        return speedup * min(self.paces), speedup * max(self.paces)

    @property
    def signs(self) -> str:
        """Of a disturbed measurement what shows it, and the load that was seen; else nothing."""
        kinds = (("plain steps", self.plain_scatter), ("verify passes", self.speculative_scatter))
        signs = [
            f"{name} took {scatter:.2f} times their median at the 90th percentile "
            f"(at most {QUIET_SCATTER:g} on a quiet machine)"
            for name, scatter in kinds
            if scatter is not None and scatter > QUIET_SCATTER
        ]
        busy = self.others is not None and self.others > QUIET_OTHERS
        if not signs and not busy:
            return ""
        if self.others is not None:
            signs.append(f"other programs took {self.others:.0%} of the CPUs")
        return ", ".join(signs)

    @property
    def disturbed(self) -> bool:
        return bool(self.signs)

    @property
    def brief(self) -> str:
        """What was seen, where there is little room."""
        scatters = [s for s in (self.plain_scatter, self.speculative_scatter) if s is not None]
        found = [f"steps scatter {max(scatters):.2f}"] if scatters else []
        if self.others is not None:
            found.append(f"other programs {self.others:.0%} of the CPUs")
        return ", ".join(found)

    @property
    def warning(self) -> str | None:
        """One line where the measurement was disturbed."""
        if not self.disturbed:
            return None
        return (
            f"a disturbed measurement: {self.signs}; do not trust times and speedups, "
            "measure again when the machine is idle"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self), "paces": list(self.paces), "quiet_scatter": QUIET_SCATTER,
            "quiet_others": QUIET_OTHERS, "disturbed": self.disturbed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Step:
    turn: int
    like: tuple[int, int]  # rows, draft tokens
    whole: float
    verify: float


class Turns:
    """Collects the steps of both runs as they come."""

    def __init__(self) -> None:
        self._steps: tuple[list[_Step], list[_Step]] = ([], [])
        self._turns = [0, 0]
        self._last: bool | None = None

    def add(self, speculative: bool, event: Event) -> None:
        if not isinstance(event, StepFinished):
            return
        if speculative is not self._last:
            self._turns[speculative] += 1
            self._last = speculative
        phases, like = event.phases, (len(event.rows), event.gamma)
        turn = self._turns[speculative]
        self._steps[speculative].append(_Step(turn, like, phases.decode, phases.verify))

    def result(self, others: float | None) -> Steadiness:
        from magicdec.profiles.machine.usual import (  # numpy, which readers do without
            scatter,
            usual,
        )

        plain, speculative = self._steps
        likes = [[step.like for step in steps] for steps in self._steps]
        wholes = [[step.whole for step in steps] for steps in self._steps]
        mine = _paces(plain, usual(likes[0], wholes[0]))
        theirs = _paces(speculative, usual(likes[1], wholes[1]))
        both = sorted(mine.keys() & theirs.keys())
        return Steadiness(
            turns=min(self._turns),
            paces=tuple(mine[turn] / theirs[turn] for turn in both),
            # Of verify passes alone: what is drafted before them may differ from step to step.
            plain_scatter=scatter(likes[0], [step.verify for step in plain]),
            speculative_scatter=scatter(likes[1], [step.verify for step in speculative]),
            others=others,
        )


def beside(
    plain: Iterable[Event], speculative: Iterable[Event], *others: float | None
) -> Steadiness:
    """Of passes that ran one after the other. others: the load of either; the most counts."""
    turns = Turns()
    for event in plain:
        turns.add(False, event)
    for event in speculative:
        turns.add(True, event)
    return turns.result(max((load for load in others if load is not None), default=None))


def _paces(steps: Sequence[_Step], usual: Sequence[float]) -> dict[int, float]:
    """Of each turn: what its steps took ÷ what such steps usually take, 1 over the whole run."""
    took: dict[int, float] = defaultdict(float)
    due: dict[int, float] = defaultdict(float)
    for step, seconds in zip(steps, usual, strict=True):
        if isfinite(seconds):
            took[step.turn] += step.whole
            due[step.turn] += seconds
    if not due:
        return {}
    mean = sum(took.values()) / sum(due.values())
    return {turn: took[turn] / due[turn] / mean for turn in due}
