"""What speculation brings: Ω, step times and speedup. MagicDec (arXiv 2408.11049), section 3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.passes import Floats, PassCost, forward
from magicdec.profiles.costs.shapes import ModelShape


def tokens_per_step(alpha: ArrayLike, gamma: ArrayLike) -> Floats:
    """Ω(γ, α) = (1 − α^(γ+1)) / (1 − α), and γ + 1 at α = 1."""
    a, g = np.broadcast_arrays(np.asarray(alpha, np.float64), np.asarray(gamma, np.float64))
    missed = np.where(a < 1, 1 - a, 1)
    with np.errstate(divide="ignore"):  # α = 0
        omega: Floats = -np.expm1((g + 1) * np.log1p(-missed)) / missed  # exact as α → 1
    return np.where(a < 1, omega, g + 1)


def tokens_per_step_of(rates: ArrayLike, gamma: int) -> float:
    """Ω = 1 + Σ_i Π_{j≤i} a_j from the conditional acceptance a_1..a_γ of each position."""
    return float(1 + np.cumprod(np.asarray(rates, np.float64)[:gamma]).sum())


@dataclass(frozen=True, slots=True)
class Drafting:
    """How drafts are made. None as `model` and "same" weights: self-speculation."""

    budget: int | None = 256  # None: the draft model's own full KV cache
    model: ModelShape | None = None
    weights: str = "same"
    weight_bytes: float | None = None  # None: the target's
    # Selection traffic of a draft step, in KV entries read per cached token (theory.md); and of
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
class StepCosts:
    """Seconds of a plain step, of one draft step, its selection, one verify pass, and the rest."""

    plain: PassCost
    draft: PassCost
    verify: PassCost
    select: Floats  # of one draft step
    accept: float = 0.0  # of a speculative step: acceptance and bookkeeping, Constants.step_s
    refresh: Floats | float = 0.0  # of a speculative step: choosing again after its verify pass

    def speedup(self, gamma: ArrayLike, omega: ArrayLike) -> Floats:
        """T_T·Ω / (γ·(T_D + T_select) + T_V + rest)."""
        speedup: Floats = self.plain.total * np.asarray(omega, np.float64) / self.step(gamma)
        return speedup

    def step(self, gamma: ArrayLike) -> Floats:
        """Seconds of one speculative step."""
        g = np.asarray(gamma, np.float64)
        step: Floats = g * (self.draft.total + self.select) + self.verify.total + self.rest
        return step

    @property
    def rest(self) -> Floats:
        """What a speculative step takes besides its drafts and its verify pass."""
        rest: Floats = self.accept + np.asarray(self.refresh, np.float64)
        return rest


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
    draft = of_draft(budget)
    select = of_draft(budget + s * drafting.select_per_token).total - draft.total
    refresh: Floats | float = 0.0
    if drafting.verify_per_token:
        read, nothing = (of_target(1, s * share) for share in (drafting.verify_per_token, 0.0))
        refresh = read.total - nothing.total
    return StepCosts(
        of_target(1), draft, of_target(g + 1), select, hardware.constants.step_s, refresh
    )
