"""What speculation brings: step times and speedup. MagicDec (arXiv 2408.11049), section 3."""

from __future__ import annotations

import functools
import statistics
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from magicdec.engine.drafters.ngram import continuation
from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.roofline import Floats, PassCost, forward
from magicdec.profiles.costs.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class Drafting:
    """How drafts are made. None as `model` and "same" weights: self-speculation."""

    budget: int | None = 256  # None: the draft model's own full KV cache
    model: ModelShape | None = None
    weights: str = "same"
    weight_bytes: float | None = None  # None: the target's
    # Selection traffic of a draft step, in KV entries read per cached token; and of
    # choosing again after a verify pass, per step.
    select_per_token: float = 0.0
    verify_per_token: float = 0.0
    borrowed: bool = False  # `model` is part of the target, which holds its weights
    caught_up: int = 0  # tokens that a draft's first pass is fed besides the pending one
    host: HostCost | None = None  # no model drafts, this does

    @property
    def who(self) -> str:
        """Who drafts, for people."""
        if self.host is not None:
            return "lookup"
        return "the model itself" if self.model is None else self.model.name


@dataclass(frozen=True, slots=True)
class HostCost:
    """Seconds of drafting without a model, once a step and row: fixed_s + token_s · S."""

    fixed_s: float = 0.0
    token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCosts(StepTimes[Floats]):
    """Times with the passes that they are the totals of, and with what searching takes: before each
    draft step, and of the rest of a step, to choose again after its verify pass."""

    plain_pass: PassCost
    draft_pass: PassCost
    verify_pass: PassCost
    search: Floats
    refresh: Floats | float

    def cells(self) -> list[StepTimes[float]]:
        """One by one."""
        parts = zip(*(np.ravel(part) for part in self.parts), strict=True)
        return [StepTimes(*map(float, cell)) for cell in parts]


def step_costs(
    target: ModelShape,
    hardware: Hardware,
    drafting: Drafting,
    *,
    rows: ArrayLike,
    context: ArrayLike,
    gamma: ArrayLike,
    weight_bytes: float = 2,
    kv_bytes: float = 2,
) -> StepCosts:
    """Prices B × S × γ cells; the three broadcast against each other."""
    b, s, g = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (rows, context, gamma)))

    def of_target(new: ArrayLike, entries: Floats = s) -> PassCost:
        return forward(
            target, hardware, rows=b, entries=entries, new=new, weight_bytes=weight_bytes,
            kv_bytes=kv_bytes,
        )  # fmt: skip

    def of_draft(entries: Floats) -> PassCost:
        if drafting.host is not None:
            each = b * (drafting.host.fixed_s + drafting.host.token_s * s) / np.maximum(g, 1)
            nothing = np.zeros(b.shape)
            return PassCost(nothing, nothing, nothing, nothing, each, each)
        return forward(
            drafting.model or target, hardware, rows=b, entries=entries,
            new=1 + drafting.caught_up / np.maximum(g, 1),
            weights=drafting.weights, weight_bytes=drafting.weight_bytes or weight_bytes,
            kv_bytes=kv_bytes, compact=drafting.budget is not None,
        )  # fmt: skip

    budget = s if drafting.budget is None else np.minimum(s, drafting.budget)
    plain, draft, verify = of_target(1), of_draft(budget), of_target(g + 1)
    search = of_draft(budget + s * drafting.select_per_token).total - draft.total
    refresh: Floats | float = 0.0
    if drafting.verify_per_token:
        read, nothing = (of_target(1, s * share) for share in (drafting.verify_per_token, 0.0))
        refresh = read.total - nothing.total
    rest = np.broadcast_to(hardware.constants.step_s + np.asarray(refresh), b.shape)
    return StepCosts(
        plain.total, draft.total + search, verify.total, np.zeros(b.shape), rest,
        plain, draft, verify, search, refresh,
    )  # fmt: skip


SHORT, LONG, TIMES = 1_000, 9_000, 5  # tokens, tokens, repetitions


@functools.cache
def lookup_cost() -> HostCost:
    """Of one row's search, measured here and now, in some milliseconds: in texts that never repeat
    themselves, which take longest."""
    short, long = (_seconds(tokens) for tokens in (SHORT, LONG))
    token = max(0.0, (long - short) / (LONG - SHORT))
    return HostCost(max(0.0, short - token * SHORT), token)


def _seconds(tokens: int) -> float:
    text, times = np.arange(tokens), []
    for _ in range(TIMES):
        begun = time.perf_counter()
        continuation(text, 4)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)
