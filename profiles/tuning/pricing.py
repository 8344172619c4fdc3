"""What a candidate would take at a place, from acceptance and step times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.roofline import forward
from magicdec.profiles.costs.slots import taking_part
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.predict.drafting import PricedRow, drafting_of, layers_of
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Evidence, Objective, Place


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of all, and of each row from its first step to its last."""

    seconds: float
    rows: tuple[float, ...]


def schedule(steps: Sequence[float], step_s: Sequence[float], slots: int) -> Run:
    """Rows take free slots in order.

    steps [rows]: how many each needs, fractions for expected numbers; step_s [at least slots]:
    seconds of a step with 1, 2, ... rows.
    """
    left, took, now = list(steps), [0.0] * len(steps), 0.0
    for active in taking_part(left, slots):
        count = min(left[row] for row in active)
        spent = count * step_s[len(active) - 1]
        now += spent
        for row in active:
            left[row] -= count
            took[row] += spent
    return Run(now, tuple(took))


def stretched(values: ArrayLike, rows: int) -> NDArray[np.float64]:
    """`rows` values, spread as `values` are: what more rows like these would need."""
    places = (np.arange(rows) + 0.5) / rows
    return np.quantile(np.asarray(values, np.float64), places)


class Prices(Protocol):
    """What a machine's steps take."""

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepTimes[float]]:
        """For 1, 2, ... `place.batch` rows at that context."""

    def once(self, candidate: Candidate, place: Place) -> float:
        """Before a row's first step: its selection."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a candidate needs at a place, and what may be used."""

    needed: int
    usable: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A candidate at a place, priced. Seconds are those of decoding all rows, selection included.

    `range`: the speedup at both ends of the acceptance's interval; None where that is not known.
    """

    place: Place
    candidate: Candidate
    memory: Memory
    price: StepTimes[float]  # with a full batch
    tokens: int
    seconds: float
    plain_seconds: float
    once: float = 0.0  # selection of a row, before its first step
    selection_s: float = 0.0  # of all rows, part of `seconds`
    tpot: float  # seconds, mean over rows
    row_seconds: tuple[float, ...]  # of the surveyed rows, each by itself in a full batch
    length: float = 1.0
    interval: tuple[float, float] | None = None
    range: tuple[float, float] | None = None
    per_position: tuple[float, ...] = ()

    @property
    def speedup(self) -> float:
        """Over plain decoding of the same rows in the same batch."""
        return self.plain_seconds / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds


def price(
    candidate: Candidate, place: Place, evidence: Evidence, prices: Prices, memory: Memory
) -> Option:
    """`evidence` is that of the candidate's drafter and γ; for plain decoding any of the text's.

    With fewer surveyed rows than slots the batch is filled with rows like them; more wait.
    """
    steps = _mixed(prices(candidate, place), evidence.drafting)
    tokens = _rows(evidence.tokens, place.batch)
    before = schedule(tokens, [at.plain for at in steps], place.batch)
    option = Option(
        place=place, candidate=candidate, memory=memory, price=steps[-1],
        tokens=round(sum(tokens)), seconds=before.seconds, plain_seconds=before.seconds,
        tpot=_tpot(before, tokens, 0.0),
        row_seconds=tuple(count * steps[-1].plain for count in evidence.tokens),
    )  # fmt: skip
    if candidate.plain:
        return option
    step_s = [at.step(candidate.gamma) for at in steps]

    def run(needed: Sequence[float]) -> Run:
        return schedule(_rows(needed, place.batch), step_s, place.batch)

    after, select = run(evidence.steps), prices.once(candidate, place)
    selection = len(tokens) * select
    wait = min(place.batch, len(tokens)) * select
    ends = None
    if evidence.interval is not None:
        low, high = (
            before.seconds / (run(evidence.scaled(length)).seconds + selection)
            for length in evidence.interval
        )
        ends = (low, high)
    return replace(
        option, seconds=after.seconds + selection, once=select, selection_s=selection,
        tpot=_tpot(after, tokens, wait),
        row_seconds=tuple(count * step_s[-1] + select for count in evidence.steps),
        length=evidence.length, interval=evidence.interval, range=ends,
        per_position=evidence.per_position,
    )  # fmt: skip


def _mixed(steps: Sequence[StepTimes[float]], drafting: float) -> list[StepTimes[float]]:
    """A step in which no row drafts verifies nothing: it is one of plain decoding."""
    if drafting == 1:
        return list(steps)
    found = []
    for rows, at in enumerate(steps, start=1):
        none = (1 - drafting) ** rows
        found.append(replace(at, verify=none * at.plain + (1 - none) * at.verify))
    return found


def plain_option(place: Place, evidence: Evidence, prices: Prices, memory: Memory) -> Option:
    """Plain decoding of the same rows."""
    return price(PLAIN, place, evidence, prices, memory)


def _rows(values: Sequence[float], slots: int) -> list[float]:
    if len(values) >= slots:
        return [float(value) for value in values]
    return [float(value) for value in stretched(values, slots)]


def _tpot(run: Run, tokens: Sequence[float], wait: float) -> float:
    """Mean over rows of the time after the first token by tokens after it."""
    each = [
        (seconds + wait) / count
        for seconds, count in zip(run.rows, tokens, strict=True)
        if count
    ]  # fmt: skip
    return sum(each) / len(each) if each else 0.0


@dataclass(frozen=True, slots=True)
class CalibratedPrices:
    """prompts: mean prompt tokens of a row by context, where rows are shorter than that; growth:
    tokens that a row has gained on average while it is decoded, half its output; models: sizes of
    those that draft for another, by name."""

    calibration: Calibration
    prompts: Mapping[int, float]
    growth: float
    models: Mapping[str, ModelShape] = field(default_factory=dict)

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepTimes[float]]:
        found, drafter = self.calibration, candidate.drafter
        prompt = self._prompt(place)
        return step_costs(
            found.model, found.hardware,
            Drafting() if drafter is None else drafting_of(
                drafter, found.model, PricedRow(prompt, self.growth), found.kv_bytes,
                self.models.get(drafter.draft),
            ),
            rows=np.arange(1, place.batch + 1), context=prompt + self.growth,
            gamma=candidate.gamma, weight_bytes=found.weight_bytes, kv_bytes=found.kv_bytes,
        ).cells()  # fmt: skip

    def unknown(self, drafter: DraftSpec) -> bool:
        """Whether its one-off selection was not measured, and is priced at nothing."""
        selector = drafter.chooser
        return selector is not None and self.calibration.selection(selector) is None

    def _prompt(self, place: Place) -> float:
        return self.prompts.get(place.context, float(place.context))

    def once(self, candidate: Candidate, place: Place) -> float:
        """Seconds that admitting a row takes: its selection, in proportion to the layers that it
        is made in, and the prefill of another model's own cache."""
        drafter, prompt = candidate.drafter, self._prompt(place)
        if drafter is None:
            return 0.0
        found, own = self.calibration, self.models.get(drafter.draft)
        layers = own.layers if own else found.model.layers
        if drafter.kind == "layers":
            layers = layers_of(drafter, found.model)
        select = found.selecting(drafter.chooser, prompt) * layers / found.model.layers
        if own is None:
            return select
        prefill = forward(
            own, found.hardware, rows=1, entries=prompt / 2, new=prompt,
            weight_bytes=found.weight_bytes, kv_bytes=found.kv_bytes,
        )  # fmt: skip
        return select + float(prefill.total)


FACTORS = (0.25, 0.5, 1, 2, 4)
UNLIMITED = Memory(0, 0)
Known = Sequence[tuple[Candidate, Evidence]]


def places_around(place: Place, most_context: int) -> list[Place]:
    """A quarter to four times of both; the context not beyond what the model was trained for."""
    batches = sorted({max(1, round(place.batch * factor)) for factor in FACTORS})
    contexts = {max(1, round(place.context * factor)) for factor in FACTORS}
    within = sorted(c for c in contexts if c <= max(most_context, place.context))
    return [Place(batch, context) for batch in batches for context in within]


def leading(options: Sequence[Option], objective: Objective) -> set[Candidate]:
    """The best drafter for each γ: all of them at all places would take seconds."""
    best: dict[int, Option] = {}
    for option in sorted(options, key=objective.value):
        best[option.candidate.gamma] = option
    return {option.candidate for option in best.values() if not option.candidate.plain}


def best_around(
    known: Known, place: Place, objective: Objective, prices: Prices
) -> Option | None:  # fmt: skip
    """The best draft at `place` with the acceptance of another context; its memory is left open.

    None where every draft would read the whole context.
    """
    options = [
        price(candidate, place, replace(evidence, interval=None), prices, UNLIMITED)
        for candidate, evidence in known
        if candidate.drafter is not None and (candidate.drafter.budget or 0) < place.context
    ]
    return max(options, key=objective.value, default=None)
