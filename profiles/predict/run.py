"""Predicts one run from a calibration; beside the measured run, says where it was off.

Rows finish at different steps and the last steps draft less, so a run is not N/Ω equal steps: it
is replayed a few times with random acceptance, and each of its steps priced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.gamma.auto import ASSUMED
from magicdec.engine.report import Tally
from magicdec.engine.request import Request
from magicdec.profiles.acceptance.rates import AcceptanceRates, Rates, conditional_rates, pooled
from magicdec.profiles.acceptance.replay import Row, lookup_walk
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.slots import taking_part
from magicdec.profiles.costs.speculation import StepCosts, step_costs
from magicdec.profiles.predict.drafting import PricedRow, drafting_of

REPLAYS = 48


@dataclass(frozen=True, slots=True)
class Work:
    """One run as the cost model needs it. `new_tokens` of each row, the prefill's included."""

    batch: int
    contexts: tuple[int, ...]  # prompt tokens of each row
    new_tokens: tuple[int, ...]
    gamma: int
    drafter: DraftSpec
    model: ModelShape | None = None  # the draft model's sizes, where another model drafts

    @classmethod
    def of(
        cls, drafter: DraftSpec, gamma: int, requests: Sequence[Request], batch: int,
        new_tokens: int, model: ModelShape | None = None,
    ) -> Work:  # fmt: skip
        """Of those rows, each of which may emit so many tokens."""
        contexts = tuple(len(request.tokens) for request in requests)
        limits = (new_tokens,) * len(requests)
        return cls(min(batch, len(requests)), contexts, limits, gamma, drafter, model)

    @property
    def row(self) -> PricedRow:
        return PricedRow(float(np.mean(self.contexts)), float(np.mean(self.new_tokens)) / 2)


def assume(calibration: Calibration, work: Work) -> AcceptanceRates:
    """The acceptance to expect before a run: as measured while calibrating, or a guess."""
    drafter, known = work.drafter, None
    if drafter.kind == "self":
        if drafter.budget is None or drafter.selector is None:
            return AcceptanceRates((1.0,), "1, drafts see the whole cache")
        known = calibration.acceptance(drafter.selector, drafter.budget, drafter.draft_weights)
    if known is None:
        name = drafter.selector if drafter.kind == "self" else drafter.draft
        told = f"{ASSUMED:g} assumed, {name} was not calibrated"
        return AcceptanceRates((ASSUMED,), told, assumed=True)
    found = AcceptanceRates(known.rates)
    told = f"{found.mean:.2f} as {known.selector} {known.budget} had it while calibrating"
    return replace(found, source=told)


def observed(tally: Tally) -> AcceptanceRates | None:
    """A run's own acceptance; None when it drafted nothing."""
    rates = conditional_rates(tally.acceptance_rate_per_position)
    return AcceptanceRates(rates, "the run's own") if rates else None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Decoding by what takes the time; `plain` is decoding of the same tokens without drafts."""

    plain: float
    select: float
    draft: float
    verify: float
    overhead: float
    steps: float  # of the batch
    plain_steps: float
    gain: float  # Ω, tokens a row gains per step

    @property
    def speculative(self) -> float:
        return self.select + self.draft + self.verify + self.overhead

    @property
    def speedup(self) -> float:
        return self.plain / self.speculative


def predict_run(calibration: Calibration, work: Work, acceptance: AcceptanceRates) -> Seconds:
    """Expected decode seconds of the run, with drafts and without."""
    rates = acceptance.padded(work.gamma)
    context = float(np.mean(work.contexts)) + float(np.mean(work.new_tokens)) / 2
    plain = _replay(work, (), np.random.default_rng(0))
    plain_s = sum(
        count * float(costs_at(calibration, work, rows, context, 0).plain)
        for (rows, _), count in plain.items()
    )
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(REPLAYS):
        counts.update(_replay(work, rates, np.random.default_rng(seed), acceptance.share))
    drafts = verifies = overhead = steps = 0.0
    for (rows, gamma), count in counts.items():
        times = count / REPLAYS
        [costs] = costs_at(calibration, work, rows, context, gamma).cells()
        searches = max(gamma, work.drafter.kind == "lookup")  # it also searches in vain
        drafts += times * searches * costs.draft
        verifies += times * costs.verify
        overhead += times * costs.rest
        steps += times
    select = sum(calibration.selecting(work.drafter.chooser, c) for c in work.contexts)
    gain = acceptance.tokens_per_step(work.gamma)
    return Seconds(
        plain_s, select, drafts, verifies, overhead, steps, sum(plain.values()), gain
    )  # fmt: skip


def full_step(calibration: Calibration, work: Work) -> StepCosts:
    """Of all rows of the batch at full γ, halfway through the run."""
    context = float(np.mean(work.contexts)) + float(np.mean(work.new_tokens)) / 2
    return costs_at(calibration, work, work.batch, context, work.gamma)


def costs_at(
    calibration: Calibration, work: Work, rows: int, context: float, gamma: int
) -> StepCosts:
    """What steps of the run's drafter take, with so many rows of that context."""
    drafting = drafting_of(
        work.drafter, calibration.model, work.row, calibration.kv_bytes, work.model
    )
    return step_costs(
        calibration.model, calibration.hardware, drafting, rows=rows, context=context,
        gamma=gamma, weight_bytes=calibration.weight_bytes, kv_bytes=calibration.kv_bytes,
    )  # fmt: skip


def _replay(
    work: Work, rates: Rates, random: np.random.Generator, share: float = 1.0
) -> Counter[tuple[int, int]]:
    """Steps of one run, counted by (rows that took part, γ of the pass)."""
    left = [tokens - 1 for tokens in work.new_tokens if tokens > 1]
    counts: Counter[tuple[int, int]] = Counter()
    gamma = len(rates)
    for rows in taking_part(left, work.batch):
        drafted = [min(gamma, left[row] - 1) for row in rows]
        if share < 1:
            draws = random.random(len(rows)) < share
            drafted = [width if draw else 0 for width, draw in zip(drafted, draws, strict=True)]
        counts[len(rows), max(drafted)] += 1
        accepted = (random.random((len(rows), gamma)) < rates).cumprod(axis=1)
        for row, hits, width in zip(rows, accepted, drafted, strict=True):
            left[row] -= 1 + int(hits[:width].sum())
    return counts


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a prediction's error, in percent of the speedup. `measured` and `predicted` are
    milliseconds a step, for "select" of the whole run, for "acceptance" tokens a row and step."""

    name: str  # "plain", "acceptance", "select", "draft", "verify" or "overhead"
    percent: float
    measured: float
    predicted: float

    @property
    def sentence(self) -> str:
        if self.name == "acceptance":
            return (
                f"mostly acceptance: {self.measured:.2f} tokens a step, {self.predicted:.2f} "
                "expected"
            )
        unit = "ms in all" if self.name == "select" else "ms a step"
        name = {"plain": "plain decoding", "select": "selection"}.get(self.name, self.name)
        return f"mostly {name}: {self.measured:.1f} {unit} measured, {self.predicted:.1f} predicted"


def error_terms(before: Seconds, after: Seconds, measured: Seconds) -> list[Term]:
    """What the error of `before` consists of, the largest first.

    `after` is predicted with the run's own acceptance: `before` and `after` differ by acceptance,
    `after` and `measured` by what its parts take. Without a plain run
    `measured.plain` is 0.
    """
    whole = measured.speculative
    terms = [
        Term("acceptance", 100 * (after.speculative / before.speculative - 1), measured.gain,
             before.gain),
        Term("select", 100 * (measured.select - after.select) / whole, 1e3 * measured.select,
             1e3 * after.select),
        *(
            Term(name, 100 * (getattr(measured, name) - getattr(after, name)) / whole,
                 1e3 * getattr(measured, name) / measured.steps,
                 1e3 * getattr(after, name) / after.steps)
            for name in ("draft", "verify", "overhead")
        ),
    ]  # fmt: skip
    if measured.plain > 0:
        terms.append(
            Term("plain", 100 * (after.plain / measured.plain - 1),
                 1e3 * measured.plain / measured.plain_steps, 1e3 * after.plain / after.plain_steps)
        )  # fmt: skip
    return sorted(terms, key=lambda term: -abs(term.percent))


def measured_seconds(report: Tally, baseline: Tally | None) -> Seconds:
    """A finished speculative run, and the plain one before it, in a prediction's terms."""
    phases = report.phases
    return Seconds(
        0.0 if baseline is None else baseline.decode_seconds, phases.select, phases.draft,
        phases.verify, phases.commit + phases.other, report.steps,
        0 if baseline is None else baseline.steps, report.mean_acceptance_length or 1.0,
    )  # fmt: skip


MOST_ROWS, MOST_TOKENS = 4, 256  # that are replayed


def expected_of_lookup(
    prompts: Sequence[Sequence[int]], new_tokens: int, gamma: int
) -> AcceptanceRates:
    """Replays lookup over the last `new_tokens` tokens of the prompts, as if they were output.

    What a model writes may repeat more or less than its document does: this is a guess with a
    reason, no measurement.
    """
    rows = []
    for prompt in prompts[:MOST_ROWS]:
        count = min(new_tokens, MOST_TOKENS, len(prompt) // 2)
        if count > 1:
            rows.append(Row(prompt[:-count], prompt[-count:]))
    emitted = sum(len(row.tokens) - 1 for row in rows)
    both = pooled(lookup_walk(row, gamma) for row in rows)
    if not both.steps:
        return AcceptanceRates((0.0,), "0, the prompts' ends repeat nothing", share=0.0)
    found = AcceptanceRates(
        conditional_rates(both.shares), share=both.steps / (emitted - sum(both.accepted))
    )
    return replace(found, source=f"{found.mean:.2f} as on the prompts' ends")
