"""The fastest γ of each batch, context and budget, as a table with the columns that fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from magicdec.cli.bars import rate
from magicdec.cli.columns import Column, Row
from magicdec.cli.console import Symbols
from magicdec.cli.number_lines import ratio_text
from magicdec.cli.report_view import size_text
from magicdec.profiles.costs.grid import ALL_BOUNDS, Grid
from magicdec.profiles.predictions import budget_text

LETTERS = {name: name[0].upper() for name in ALL_BOUNDS}


def _ms(name: str) -> Callable[[Row, Symbols], str]:
    return lambda row, look: milliseconds(row[name])


def milliseconds(seconds: float) -> str:
    """Three digits or more, as milliseconds."""
    ms = seconds * 1e3
    decimals = 0 if ms >= 999.5 else 1 if ms >= 9.995 else 2 if ms >= 0.9995 else 3
    return f"{ms:,.{decimals}f}"


def columns(target_speedup: float, several_budgets: bool) -> list[Column]:
    """In the order of the table."""
    target = f"α for {target_speedup:g}×"
    return [
        Column("B", 0, lambda row, look: f"{row['batch']:,}{'' if row['fits'] else '!'}"),
        Column("context", 0, lambda row, look: f"{row['context']:,}"),
        Column("budget", 0 if several_budgets else 90, _budget),
        Column("γ", 0, lambda row, look: str(row["gamma"])),
        Column("T_T ms", 2, _ms("plain")),
        Column("T_D ms", 2, _ms("draft")),
        Column("T_V ms", 2, _ms("verify")),
        Column("bound", 4, _bound, left=True),
        Column("Ω", 3, lambda row, look: f"{row['omega']:.2f}"),
        Column("needs Ω", 7, lambda row, look: f"{row['break_even_length']:.2f}"),
        Column(target, 6, lambda row, look: _alpha(row["required_alpha"])),
        Column("TPOT ms", 5, _ms("tpot")),
        Column("tokens/s", 3, lambda row, look: f"{row['tokens_per_s']:,.0f}"),
        Column("speedup", 1, lambda row, look: ratio_text(row["speedup"], look)),
        Column("memory", 8, lambda row, look: size_text(row["memory_bytes"])),
        Column("largest B", 9, lambda row, look: f"{int(row['largest_batch']):,}"),
    ]


def best_rows(grid: Grid) -> list[Row]:
    """The numbers of each batch, context and budget at its fastest γ."""
    names = (
        "omega", "plain", "draft", "verify", "tpot", "tokens_per_s", "speedup", "plain_bound",
        "draft_bound", "verify_bound", "break_even_length", "required_alpha", "fits",
        "memory_bytes", "largest_batch",
    )  # fmt: skip
    at_best = {name: grid.at_best(getattr(grid, name)) for name in names}
    best, axes = grid.best, grid.axes
    rows = []
    for place in np.ndindex(best.shape):
        row: Row = {name: values[place].item() for name, values in at_best.items()}
        row["batch"], row["context"] = axes.batch[place[0]], axes.context[place[1]]
        row["budget"], row["gamma"] = axes.budget[place[2]], axes.gamma[best[place]]
        rows.append(row)
    return rows


def _budget(row: Row, look: Symbols) -> str:
    budget = budget_text(row["budget"])
    return budget if isinstance(budget, str) else f"{budget:,}"


def _bound(row: Row, look: Symbols) -> str:
    names = ("plain_bound", "draft_bound", "verify_bound")
    return " ".join(LETTERS[ALL_BOUNDS[row[name]]] for name in names)


def _alpha(value: float) -> str:
    return rate(None if np.isnan(value) else value)
