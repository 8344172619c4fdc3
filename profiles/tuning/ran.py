"""An option with the figures of its own runs in place of the predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.storage.schema import Sample
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.verdict import Measured


def as_ran(option: Option, mine: Measured, selecting: float = 0.0) -> Option:
    """With the speedup of `mine`; steps and tokens are medians over its rounds, of means per step.

    `length` is what a step gives in tokens of a plain step: where rows end one before the other
    that is less than the acceptance gives a row. selecting: seconds of selection inside a step;
    the others come once. The option itself where a round has no steps.
    """
    rounds = [(a, b) for a, b in zip(mine.samples, mine.plain, strict=True) if a.steps and b.steps]
    if not rounds or not mine.speedup or option.candidate.plain:
        return option
    gamma = option.candidate.gamma
    plain = median(before.seconds / before.steps for _, before in rounds)
    steps = [_step(after, before, gamma, selecting) for after, before in rounds]
    step = StepTimes(*(plain * median(part) for part in zip(*steps, strict=True)))
    selected = median(_once(after, selecting) / after.seconds for after, _ in rounds)
    seconds = median(after.seconds for after, _ in rounds)
    return replace(
        option, price=step, seconds=seconds, plain_seconds=seconds * mine.speedup,
        selection_s=seconds * selected, interval=None,
        length=median(step_tokens(after) / step_tokens(before) for after, before in rounds),
    )  # fmt: skip


def _step(after: Sample, before: Sample, gamma: int, selecting: float) -> tuple[float, ...]:
    """The parts of a step in plain steps of the same round."""
    phases, unit = after.phases, after.steps * step_s(before)
    drafting = phases.draft + phases.select - _once(after, selecting)
    rest = phases.commit + phases.other
    return 1.0, drafting / gamma / unit, phases.verify / unit, 0.0, rest / unit


def _once(sample: Sample, selecting: float) -> float:
    """Seconds of the selection that came between steps."""
    return max(sample.phases.select - selecting * sample.steps, 0.0)


def step_s(sample: Sample) -> float:
    return sample.seconds / sample.steps


def step_tokens(sample: Sample) -> float:
    return sample.tokens / sample.steps


def rounds_text(speedups: Sequence[float]) -> str:
    """The median, and how far the rounds lie apart where they do."""
    low, middle, high = (
        f"{value:.2f}×" for value in (min(speedups), median(speedups), max(speedups))
    )
    return middle if low == high else f"{middle} ({low[:-1]} to {high[:-1]})"
