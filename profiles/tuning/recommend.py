"""From what is known of a context to what to do there, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.recorded.schema import Sample
from magicdec.profiles.tuning.candidate import Candidate, Objective, Place
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.ranking import Measured, fitting, unsteady


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


IDEAL = {
    "acceptance": "with every draft token accepted",
    "draft": "if drafting cost nothing",
    "verify": "if a verify pass took no longer than a plain step",
    "selection": "without the one-off selection",
    "the rest of a step": "if a step were its passes alone",
}
GB = 1e9


def idealised(option: Option) -> Mapping[str, float]:
    """The speedup if one term were ideal and the others as they are. Not for plain decoding."""
    price, gamma = option.price, option.candidate.gamma
    stepping = option.seconds - option.selection_s

    def with_step(changed: float) -> float:
        return stepping * changed / price.step(gamma) + option.selection_s

    seconds = {
        "acceptance": stepping * option.length / (gamma + 1) + option.selection_s,
        "draft": with_step(replace(price, draft=0.0).step(gamma)),
        "verify": with_step(replace(price, verify=min(price.verify, price.plain)).step(gamma)),
        "selection": stepping,
        "the rest of a step": with_step(replace(price, rest=0.0).step(gamma)),
    }
    return {term: option.plain_seconds / value for term, value in seconds.items()}


def deciding(option: Option) -> str:
    """The term that keeps the speedup down most."""
    speedups = idealised(option)
    return max(IDEAL, key=lambda term: speedups[term])


def reason(option: Option, expected: float | None = None) -> list[str]:
    """Sentences about a speculative option: its costs, its acceptance, what decides. expected: the
    surveyed Ω, where the option's own length comes from runs."""
    price, gamma = option.price, option.candidate.gamma
    parts = [
        f"a draft step takes {price.draft / price.plain:.2f} of a plain step",
        f"a verify pass {price.verify / price.plain:.2f}",
    ]
    if price.rest >= 0.005 * price.plain:
        parts.append(f"the rest of a step {price.rest / price.plain:.2f}")
    reach = ""
    if option.interval is not None:
        low, high = option.interval
        reach = f" (95% {low:.2f} to {high:.2f})"
    if expected is not None and f"{expected:.2f}" != f"{option.length:.2f}":
        reach = f" (Ω {expected:.2f}, while all rows are decoded)"
    said = [
        f"{', '.join(parts).capitalize()}: γ {gamma} needs {price.needed(gamma):.2f} tokens per "
        f"step and gets {option.length:.2f}{reach}."
    ]
    if option.selection_s >= 0.01 * option.seconds:
        said.append(
            f"Selecting the entries once takes {option.selection_s / option.seconds:.0%} of the "
            "time, less in longer outputs."
        )
    term = deciding(option)
    gain = idealised(option)[term]
    said.append(
        f"What limits it most is {term}: {IDEAL[term]} the speedup would be {gain:.2f}×"
        f" instead of {option.speedup:.2f}×."
    )
    return said


def measured_reason(mine: Measured, beside: Measured | Option) -> list[str]:
    """The same of what was not predicted, from its runs. beside: what it builds on."""
    pairs = [(a, b) for a, b in zip(mine.samples, mine.plain, strict=True) if a.steps and b.steps]
    said = []
    if pairs:
        takes = median(step_s(after) / step_s(before) for after, before in pairs)
        gives = median(step_tokens(after) / step_tokens(before) for after, before in pairs)
        said.append(
            f"Measured, not predicted: a step takes {takes:.2f} of a plain step and gives "
            f"{gives:.2f} times its tokens."
        )
    reached = "reached" if isinstance(beside, Measured) else "is predicted to reach"
    said.append(f"What it builds on, {beside.candidate.label}, {reached} {beside.speedup:.2f}×.")
    return said


def memory_reason(misfits: Sequence[Option], tried: int) -> list[str]:
    """What did not fit; nothing when all did. `tried`: candidates, over all places."""
    if not misfits:
        return []
    least = min(misfits, key=lambda option: option.memory.needed)
    all_of = "none" if len(misfits) == tried else f"{len(misfits):,} of {tried:,}"
    verb = "fits" if all_of == "none" else "do not fit"
    return [
        f"Of the settings tried {all_of} {verb} in memory: the smallest of them needs "
        f"{least.memory.needed / GB:.1f} GB at {least.place.label}, "
        f"{least.memory.usable / GB:.1f} GB may be used."
    ]


Rating = Option | Measured


@dataclass(frozen=True, slots=True)
class Recommendation:
    """speedup: measured, or as predicted where `measured` is None. reachable: False when nothing
    keeps the TPOT limit; the candidate is then the one that comes closest."""

    place: Place
    candidate: Candidate
    speedup: float
    measured: Measured | None
    reachable: bool
    reasons: tuple[str, ...]

    @property
    def speculate(self) -> bool:
        return not self.candidate.plain


def recommend(answer: Answer, objective: Objective) -> Recommendation | None:
    """By the measured ranking where there is one. None when nothing fits or nothing is known."""
    real = answer.verdict(objective)
    predicted = answer.ranking(objective)
    chosen: Rating
    if real is not None:
        chosen, reachable = real.winner or real.nearest, real.winner is not None
    elif predicted is not None:
        chosen, reachable = predicted.winner or predicted.nearest, predicted.winner is not None
    else:
        return None
    measured = chosen if isinstance(chosen, Measured) else None
    said = tuple(_reasons(answer, objective, chosen, reachable))
    return Recommendation(chosen.place, chosen.candidate, chosen.speedup, measured, reachable, said)


def _reasons(
    answer: Answer, objective: Objective, chosen: Rating, reachable: bool
) -> Iterator[str]:
    here = answer.at(chosen.place)
    measured = chosen if isinstance(chosen, Measured) else None
    if not reachable:
        assert objective.max_tpot is not None
        yield (
            f"No setting tried keeps a TPOT of {objective.max_tpot * 1e3:g} ms: the closest, "
            f"{chosen.candidate.label} at {chosen.place.label}, takes {chosen.tpot * 1e3:.1f} ms."
        )
    if not chosen.candidate.plain:
        yield from _how(answer, chosen)
    else:
        yield from _why_not(answer, objective, here, measured)
    ran = [one for one in answer.measured() if one.place == chosen.place]
    if measured is not None and unsteady(ran):
        rounds, spread = len(measured.samples), max(one.spread for one in ran)
        yield (
            f"The {rounds} rounds differ by up to {1 + spread:.2f}×: something else kept the "
            "machine busy; these figures are worth less than their digits."
        )
    misfits = fitting(here)[1]
    yield from memory_reason(misfits, len(here))


def _why_not(
    answer: Answer, objective: Objective, here: list[Option], measured: Measured | None
) -> Iterator[str]:
    """What kept the best draft from paying."""
    drafts = [option for option in fitting(here)[0] if not option.candidate.plain]
    if not drafts:
        return
    best = max(drafts, key=objective.value)
    if measured is not None:
        ran = [
            one for one in answer.measured()
            if one.place == measured.place and not one.candidate.plain
        ]  # fmt: skip
        if ran:
            top = max(ran, key=objective.value)
            slower = max(top.speedups) <= 1
            yield (
                f"The best draft that ran, {top.candidate.label}, reached "
                f"{rounds_text(top.speedups)}: "
                f"{'slower' if slower else 'not faster in every round'}."
            )
            yield from _how(answer, top)
            return
    else:
        yield f"The best draft, {best.candidate.label}, is predicted to reach {best.speedup:.2f}×."
    yield from reason(best)


def _how(answer: Answer, chosen: Rating) -> list[str]:
    """What it rests on."""
    variant = answer.variant_of(chosen)
    if variant is None:
        option = answer.option_of(chosen)
        assert option is not None, "what ran is an option or a variant"
        return _reason(answer, option, chosen)
    assert isinstance(chosen, Measured), "a variant is not predicted"
    ran = (one for one in answer.measured() if one.place == chosen.place)
    beside = next((one for one in ran if one.candidate == variant.base.candidate), None)
    return measured_reason(chosen, beside or corrected(variant.base, answer.factors()))


def _reason(answer: Answer, option: Option, chosen: Rating) -> list[str]:
    """By its own real runs, where it has some."""
    if not isinstance(chosen, Measured):
        return reason(option)
    key = option.candidate.key(option.place)
    steps = (cell.step.select for cell in answer.cells() if cell.key == key)
    return reason(as_ran(option, chosen, next(steps, None) or 0.0), option.length)
