"""What a grid of predictions amounts to, in sentences. Symbols are replaced where it is printed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from magicdec.profiles.costs.break_even import Outlook
from magicdec.profiles.costs.grid import ALL_BOUNDS, Axes, Grid
from magicdec.profiles.predict.record import budget_text

MOST_BATCHES = 6  # named one by one


def conclusion(grid: Grid, budgets: Sequence[int] = (0,)) -> list[str]:
    """For each of `budgets`, by index: where speculation pays, and what it fails on elsewhere."""
    said = []
    for index in budgets:
        budget = grid.axes.budget[index]
        sentences = " ".join(_sentences(grid, index))
        several = len(grid.axes.budget) > 1
        said.append(f"Budget {budget_text(budget)}: {sentences}" if several else sentences)
    return said


LARGE_BATCHES = "beyond the first a larger batch gains more, beyond the second large batches gain"


def outlook(found: list[Outlook]) -> list[str]:
    """The two thresholds of large batches, a line for each budget."""
    said = []
    for one in found:
        budget = f"budget {budget_text(one.budget)}, " if len(found) > 1 else ""
        said.append(
            f"growth threshold {_tokens(one.growth_threshold)}, break-even context "
            f"{_tokens(one.break_even_context)} ({budget}γ {one.gamma})"
        )
    return said


def _tokens(context: float | None) -> str:
    return "none" if context is None else f"{context:,.0f} tokens"


def _sentences(grid: Grid, budget: int) -> Iterator[str]:
    speedup, fits = grid.at_best(grid.speedup)[:, :, budget], grid.at_best(grid.fits)[:, :, budget]
    if not fits.any():
        yield "Nothing of this fits in memory."
        return
    pays, cells = (speedup > 1) & fits, int(fits.sum())
    among = f"{cells:,} cells" if fits.all() else f"{cells:,} cells that fit in memory"
    if cells == 1:
        at = _place(fits.argmax(), fits.shape)
        verb = "pays" if pays.any() else "does not pay"
        yield (
            f"Speculation {verb} at {_cell(grid.axes, *at)}: {speedup[at]:.2f}× with γ "
            f"{_chosen(grid, *at, budget)}."
        )
    elif pays.any():
        top = _place(np.where(fits, speedup, -np.inf).argmax(), speedup.shape)
        share = f"all {among}" if pays.sum() == cells else f"{int(pays.sum()):,} of {among}"
        yield (
            f"Speculation pays in {share}, most at {_cell(grid.axes, *top)}: "
            f"{speedup[top]:.2f}× with γ {_chosen(grid, *top, budget)}."
        )
        yield from _starts(grid.axes, pays, fits)
    else:
        yield f"Speculation pays in none of {among}."
    if not pays[fits].all():
        worst = _place(np.where(fits, speedup, np.inf).argmin(), speedup.shape)
        if cells > 1:
            yield f"The least is {speedup[worst]:.2f}× at {_cell(grid.axes, *worst)}."
        yield _reason(grid, *worst, budget)


def _starts(axes: Axes, pays: NDArray[np.bool_], fits: NDArray[np.bool_]) -> Iterator[str]:
    """The context from which on each batch gains; batches with more than one such are left out."""
    if len(axes.batch) > MOST_BATCHES or len(axes.context) < 2 or pays[fits].all():
        return
    groups: dict[str, list[int]] = defaultdict(list)
    order = np.argsort(axes.context)
    for row in np.argsort(axes.batch):
        here = [(axes.context[c], bool(pays[row, c])) for c in order if fits[row, c]]
        gains = [gain for _, gain in here]
        if gains and gains == sorted(gains):
            start = here[gains.index(True)][0] if any(gains) else None
            where = "at every context" if all(gains) else f"from context {start:,}" if start else ""
            groups[where].append(axes.batch[row])
    never = groups.pop("", None)
    said = [f"{where} at B {_listed(batches)}" for where, batches in groups.items()]
    if said and never:
        said.append(f"nowhere at B {_listed(never)}")
    if said:
        yield f"It pays {', '.join(said)}."


def _reason(grid: Grid, row: int, column: int, budget: int) -> str:
    """A cell's two ratios to a plain step, and the tokens that they ask for."""
    place = (row, column, budget)
    at = (*place, int(grid.best[place]))
    draft, verify, rest = (
        values[at] / grid.plain[at] for values in (grid.draft, grid.verify, grid.accept)
    )
    drafting, verifying = (ALL_BOUNDS[bound[at]] for bound in (grid.draft_bound, grid.verify_bound))
    besides = f", the rest of a step {rest:.2f}" if rest >= 0.005 else ""
    return (
        f"There a draft step takes {draft:.2f} of a plain step (bound by {drafting}), a verify "
        f"pass {verify:.2f} (bound by {verifying}){besides}: γ {_gamma(grid, row, column, budget)} "
        f"needs {grid.break_even_length[at]:.2f} tokens per step and gets {grid.omega[at]:.2f}."
    )


def _cell(axes: Axes, row: int, column: int) -> str:
    return f"B {axes.batch[row]:,}, context {axes.context[column]:,}"


def _gamma(grid: Grid, row: int, column: int, budget: int) -> int:
    return grid.axes.gamma[int(grid.best[row, column, budget])]


def _chosen(grid: Grid, row: int, column: int, budget: int) -> str:
    """A best γ at the end of the sweep may not be the best of all."""
    gamma, swept = _gamma(grid, row, column, budget), grid.axes.gamma
    return f"{gamma} (the longest swept)" if len(swept) > 1 and gamma == max(swept) else f"{gamma}"


def _listed(batches: list[int]) -> str:
    *first, last = (f"{batch:,}" for batch in sorted(batches))
    return f"{', '.join(first)} and {last}" if first else last


def _place(flat: np.intp, shape: tuple[int, ...]) -> tuple[int, int]:
    row, column = np.unravel_index(flat, shape)
    return int(row), int(column)
