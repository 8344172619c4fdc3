"""What a calibration says of one run: before it, and beside what was measured. Torch-free.

Rows finish at different steps and the last steps draft less, so a run is not N/Ω equal steps: it
is replayed a few times with random acceptance, and each of its steps priced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.costs.speculation import Drafting, step_costs

REPLAYS = 48
Rates = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One run as the cost model needs it. `new_tokens` of each row, the prefill's included."""

    batch: int
    contexts: tuple[int, ...]  # prompt tokens of each row
    new_tokens: tuple[int, ...]
    gamma: int
    selector: str
    budget: int | None  # None: drafts read the whole cache
    weights: str  # that draft


@dataclass(frozen=True, slots=True)
class Assumed:
    """Conditional acceptance of each draft position, and where it comes from."""

    rates: Rates
    source: str

    def padded(self, gamma: int) -> Rates:
        """γ rates; later positions are taken to be like the last known one."""
        return (*self.rates, *[self.rates[-1]] * (gamma - len(self.rates)))[:gamma]


@dataclass(frozen=True, slots=True)
class Seconds:
    """Decoding by what takes the time; `plain` is decoding of the same tokens without drafts."""

    plain: float
    select: float
    draft: float
    verify: float
    overhead: float
    draft_steps: float
    steps: float

    @property
    def speculative(self) -> float:
        return self.select + self.draft + self.verify + self.overhead

    @property
    def speedup(self) -> float:
        return self.plain / self.speculative


def predict_run(calibration: Calibration, work: Work, acceptance: Assumed) -> Seconds:
    """Expected decode seconds of the run, with drafts and without."""
    rates = acceptance.padded(work.gamma)
    context = float(np.mean(work.contexts)) + float(np.mean(work.new_tokens)) / 2
    plain = _replay(work, (), np.random.default_rng(0))
    plain_s = sum(
        count * float(_costs(calibration, work, rows, context, 0).plain.total)
        for (rows, _), count in plain.items()
    )
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(REPLAYS):
        counts.update(_replay(work, rates, np.random.default_rng(seed)))
    drafts = verifies = overhead = draft_steps = steps = 0.0
    for (rows, gamma), count in counts.items():
        times = count / REPLAYS
        costs = _costs(calibration, work, rows, context, gamma)
        drafts += times * gamma * float(costs.draft.total + costs.select)
        verifies += times * float(costs.verify.total)
        overhead += times * costs.accept
        draft_steps += times * gamma
        steps += times
    selection = calibration.selection(work.selector)
    select = 0.0
    if selection is not None and work.budget is not None:
        select = sum(selection.seconds(context) for context in work.contexts)
    return Seconds(plain_s, select, drafts, verifies, overhead, draft_steps, steps)


def _costs(calibration: Calibration, work: Work, rows: int, context: float, gamma: int):  # type: ignore[no-untyped-def]
    grown = float(np.mean(work.new_tokens)) / 2
    budget = None
    if work.budget is not None:  # accepted tokens are kept on top of the budget
        budget = int(min(work.budget, float(np.mean(work.contexts))) + grown)
    drafting = Drafting(
        budget=budget,
        weights=work.weights,
        weight_bytes=1.0 if work.weights == "int8" else None,
    )
    return step_costs(
        calibration.model, calibration.hardware, drafting, rows=rows, context=context,
        gamma=gamma, weight_bytes=calibration.weight_bytes, kv_bytes=calibration.kv_bytes,
    )  # fmt: skip


def _replay(
    work: Work, rates: Sequence[float], random: np.random.Generator
) -> Counter[tuple[int, int]]:
    """Steps of one run, counted by (rows that took part, γ of the pass)."""
    left = [tokens - 1 for tokens in work.new_tokens if tokens > 1]
    active, waiting = left[: work.batch], left[work.batch :]
    counts: Counter[tuple[int, int]] = Counter()
    gamma = len(rates)
    while active:
        drafted = [min(gamma, remaining - 1) for remaining in active]
        counts[len(active), max(drafted)] += 1
        accepted = (random.random((len(active), gamma)) < rates).cumprod(axis=1)
        gains = [1 + int(a[:d].sum()) for a, d in zip(accepted, drafted, strict=True)]
        active = [r - gain for r, gain in zip(active, gains, strict=True) if r > gain]
        while waiting and len(active) < work.batch:
            active.append(waiting.pop(0))
    return counts


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a prediction's error, in percent of the measured speedup."""

    name: str  # "plain", "acceptance", "select", "draft", "verify" or "overhead"
    percent: float
    measured: float
    predicted: float


def error_terms(
    before: Seconds, after: Seconds, measured: Seconds, lengths: tuple[float, float]
) -> list[Term]:
    """What the error of `before` consists of, the largest first.

    `after` is predicted with the run's own acceptance, so that `before` and `after` differ by
    acceptance alone, and `after` and `measured` by times. lengths: mean acceptance length assumed
    and measured.
    """
    whole = measured.speculative
    terms = [
        Term("acceptance", 100 * (after.speculative / before.speculative - 1), lengths[1],
             lengths[0]),
        *(
            Term(name, 100 * (getattr(measured, name) - getattr(after, name)) / whole,
                 getattr(measured, name), getattr(after, name))
            for name in ("select", "draft", "verify", "overhead")
        ),
    ]  # fmt: skip
    if measured.plain > 0:
        percent = 100 * (after.plain / measured.plain - 1)
        terms.append(Term("plain", percent, measured.plain, after.plain))
    return sorted(terms, key=lambda term: -abs(term.percent))


def without_baseline(seconds: Seconds) -> Seconds:
    return replace(seconds, plain=0.0)
