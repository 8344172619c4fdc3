"""Why, in words: what a step costs, what acceptance gives, and which of them decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.ran import step_s, step_tokens
from magicdec.profiles.tuning.verdict import Measured

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
