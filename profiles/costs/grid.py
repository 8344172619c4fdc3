"""A whole grid of predictions at once: batch × context × budget × γ as arrays."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from magicdec.engine.errors import require
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.memory import RESERVE, Memory, memory, usable_bytes
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.roofline import BOUNDS, Floats
from magicdec.profiles.costs.speculation import Drafting, StepCosts, step_costs

STEPS_OF_NEWTON = 60  # quadratic except at a double root, which Ω does not have in 0..1


def required_alpha(omega: ArrayLike, gamma: ArrayLike) -> Floats:
    """The α in 0..1, the same at every position, with Ω(γ, α) = omega, where arrays broadcast.

    nan where even α = 1, which gives γ + 1 tokens per step, is too little; 0 where none is needed.
    """
    wanted, drafts = np.broadcast_arrays(
        np.asarray(omega, np.float64), np.asarray(gamma, np.float64)
    )
    found = np.empty(wanted.shape)
    for length in np.unique(drafts):
        here = drafts == length
        found[here] = _invert(wanted[here], int(length))
    return found


def _invert(wanted: Floats, gamma: int) -> Floats:
    """Newton from above on 1 + α + ... + α^γ, which is convex and rises: it cannot overshoot."""
    possible = wanted <= gamma + 1
    alpha = np.where(wanted > 1, 1.0, 0.0)
    for _ in range(STEPS_OF_NEWTON):
        value, slope = np.ones_like(alpha), np.zeros_like(alpha)
        for _ in range(gamma):  # Horner's scheme, with the derivative
            slope = value + alpha * slope
            value = 1 + alpha * value
        step = np.where(possible & (wanted > 1), (value - wanted) / np.maximum(slope, 1), 0.0)
        alpha = np.clip(alpha - step, 0.0, 1.0)
        if np.all(np.abs(step) < 1e-14):
            break
    return np.where(possible, alpha, np.nan)


def best_gamma(speedup: Floats) -> NDArray[np.int64]:
    """Index of the fastest γ on the last axis; the shortest draft of equals."""
    return np.asarray(np.argmax(speedup, axis=-1))


MOST_CELLS = 1_000_000
SELECTION = "selection"  # bounds a draft step that searches longer than it drafts
ALL_BOUNDS = (*BOUNDS, SELECTION)


@dataclass(frozen=True, slots=True)
class Axes:
    """The values of each axis; a budget of None is a draft cache as full as the target's."""

    batch: tuple[int, ...]
    context: tuple[int, ...]
    budget: tuple[int | None, ...]
    gamma: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.batch), len(self.context), len(self.budget), len(self.gamma)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is priced, and on what. The budget of `drafting` gives way to the grid's axis."""

    target: ModelShape
    hardware: Hardware
    acceptance: AcceptanceRates
    drafting: Drafting = field(default_factory=Drafting)
    weight_bytes: float = 2
    kv_bytes: float = 2
    reserve: float = RESERVE  # share of memory that is kept free
    target_speedup: float = 1.0

    def with_budget(self, budget: int | None) -> Drafting:
        return dataclasses.replace(self.drafting, budget=budget)


@dataclass(frozen=True, slots=True)
class Grid:
    """One array per number, all of the axes' shape [batch, context, budget, γ].

    Seconds and bytes. `draft` is one draft step with its selection, `accept` what a speculative
    step costs besides its passes, `step` γ drafts, a verify pass and that; bounds are indices into
    ALL_BOUNDS; `required_alpha` (for the setup's target speedup) is nan where no acceptance
    suffices.
    """

    axes: Axes
    omega: Floats
    plain: Floats
    draft: Floats
    select: Floats
    verify: Floats
    accept: Floats
    step: Floats
    tpot: Floats
    tokens_per_s: Floats
    speedup: Floats
    plain_bound: NDArray[np.int64]
    draft_bound: NDArray[np.int64]
    verify_bound: NDArray[np.int64]
    break_even_length: Floats
    required_alpha: Floats
    weights_bytes: Floats  # the draft's included
    full_kv_bytes: Floats
    draft_kv_bytes: Floats
    fits: NDArray[np.bool_]
    largest_batch: Floats

    @property
    def memory_bytes(self) -> Floats:
        return self.weights_bytes + self.full_kv_bytes + self.draft_kv_bytes

    @property
    def plain_tokens_per_s(self) -> Floats:
        return np.asarray(self.axes.batch, np.float64).reshape(-1, 1, 1, 1) / self.plain

    @property
    def best(self) -> NDArray[np.int64]:
        """[batch, context, budget]: index of the fastest γ."""
        return best_gamma(self.speedup)

    def at_best(self, values: NDArray[Any]) -> NDArray[Any]:
        """[batch, context, budget] of `values` at the fastest γ of each."""
        return np.take_along_axis(values, self.best[..., None], axis=-1)[..., 0]


def price(setup: Setup, axes: Axes) -> Grid:
    """Every cell of the axes' product. Raises ConfigError beyond MOST_CELLS cells."""
    cells = int(np.prod([float(size) for size in axes.shape]))
    require(
        cells <= MOST_CELLS,
        f"{' × '.join(map(str, axes.shape))} values of batch, context, budget and γ are "
        f"{cells:,} cells; {MOST_CELLS:,} is the most, sweep in wider steps",
    )
    omega = np.array([setup.acceptance.tokens_per_step(gamma) for gamma in axes.gamma])
    parts = [_with_budget(setup, axes, budget, omega) for budget in axes.budget]
    # Stacked on the budget's axis; every number was priced per budget.
    stacked = {
        name: np.stack([part[name] for part in parts], axis=2) for name in parts[0]
    }  # fmt: skip
    return Grid(axes=axes, **stacked)


def _with_budget(
    setup: Setup, axes: Axes, budget: int | None, omega: Floats
) -> dict[str, NDArray[Any]]:
    """The fields of Grid for one budget, each [batch, context, γ]."""
    rows, context, gamma = np.meshgrid(axes.batch, axes.context, axes.gamma, indexing="ij")
    drafting = setup.with_budget(budget)
    sizes = {"weight_bytes": setup.weight_bytes, "kv_bytes": setup.kv_bytes}
    costs = step_costs(
        setup.target, setup.hardware, drafting, rows=rows, context=context, gamma=gamma, **sizes
    )
    kept = memory(setup.target, setup.hardware, drafting, context=context, gamma=gamma, **sizes)
    tokens = np.broadcast_to(omega, rows.shape)
    step = costs.step(gamma)
    needed = setup.target_speedup * step / costs.plain
    return {
        "omega": tokens,
        "plain": costs.plain,
        "draft": costs.draft,
        "select": costs.search,
        "verify": costs.verify,
        "accept": costs.rest,
        "step": step,
        "tpot": step / tokens,
        "tokens_per_s": rows * tokens / step,
        "speedup": costs.speedup(gamma, tokens),
        "plain_bound": costs.plain_pass.bound,
        "draft_bound": _draft_bound(costs),
        "verify_bound": costs.verify_pass.bound,
        "break_even_length": costs.needed(gamma),
        "required_alpha": required_alpha(needed, gamma),
        **_memory(kept, rows, usable_bytes(setup.hardware, setup.reserve)),
    }


def _draft_bound(costs: StepCosts) -> NDArray[np.int64]:
    return np.where(
        costs.search > costs.draft_pass.total, ALL_BOUNDS.index(SELECTION), costs.draft_pass.bound
    )


def _memory(kept: Memory, rows: NDArray[np.int64], usable: float) -> dict[str, NDArray[Any]]:
    return {
        "weights_bytes": np.full(rows.shape, kept.weights + kept.draft_weights),
        "full_kv_bytes": rows * kept.full_kv_row,
        "draft_kv_bytes": rows * kept.draft_kv_row,
        "fits": kept.total(rows) <= usable,
        "largest_batch": kept.largest_batch(usable),
    }
