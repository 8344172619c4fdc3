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
    short = np.where(a < 1, 1 - a, 1)
    return np.where(a < 1, (1 - a ** (g + 1)) / short, g + 1)


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
    # Selection traffic of a draft step, in KV entries read per cached token (theory.md).
    select_per_token: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of a plain step, one draft step (selection included), one verify pass."""

    plain: PassCost
    draft: PassCost
    verify: PassCost
    select: Floats  # of one draft step

    def speedup(self, gamma: ArrayLike, omega: ArrayLike) -> Floats:
        """T_T·Ω / (γ·(T_D + T_select) + T_V)."""
        return self.plain.total * omega / self.step(gamma)

    def step(self, gamma: ArrayLike) -> Floats:
        """Seconds of one speculative step."""
        g = np.asarray(gamma, np.float64)
        return g * (self.draft.total + self.select) + self.verify.total


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
    sizes = {"weight_bytes": weight_bytes, "kv_bytes": kv_bytes}
    plain = forward(target, hardware, rows=b, entries=s, new=1, **sizes)
    verify = forward(target, hardware, rows=b, entries=s, new=g + 1, **sizes)
    model = drafting.model or target
    budget = s if drafting.budget is None else np.minimum(s, drafting.budget)
    draft = forward(
        model, hardware, rows=b, entries=budget, new=1, weights=drafting.weights,
        weight_bytes=drafting.weight_bytes or weight_bytes, kv_bytes=kv_bytes,
    )  # fmt: skip
    searched = forward(
        model, hardware, rows=b, entries=budget + s * drafting.select_per_token, new=1,
        weights=drafting.weights, weight_bytes=drafting.weight_bytes or weight_bytes,
        kv_bytes=kv_bytes,
    )  # fmt: skip
    return StepCosts(plain, draft, verify, searched.total - draft.total)
