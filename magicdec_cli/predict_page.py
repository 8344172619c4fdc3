"""The page of `magicdec predict` for people: what was asked, the grid, memory, a conclusion."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from magicdec.cli.columns import render
from magicdec.cli.console import Symbols, plain_text, symbols
from magicdec.cli.heatmap import Map, heat_lines, spread
from magicdec.cli.predict_input import Question
from magicdec.cli.predict_memory import memory_table
from magicdec.cli.predict_table import best_rows, columns, milliseconds
from magicdec.cli.predict_words import LARGE_BATCHES, conclusion, outlook
from magicdec.engine.errors import require
from magicdec.profiles.costs.grid import ALL_BOUNDS, Grid
from magicdec.profiles.costs.outlook import outlooks
from magicdec.profiles.costs.passes import BOUNDS
from magicdec.profiles.predictions import budget_text

MOST_TABLE_ROWS = 500
MOST_BUDGETS = 6  # that have sentences of their own


def refuse_long_table(grid: Grid, heatmap: bool) -> None:
    """Raises ConfigError for a grid that no table can show."""
    rows = grid.best.size
    require(
        heatmap or rows <= MOST_TABLE_ROWS,
        f"{rows:,} rows are too many for a table; add --heatmap, or --format csv for all cells",
    )


def print_page(console: Console, asked: Question, grid: Grid, heatmap: bool) -> None:
    """Writes the whole page."""
    look = symbols(console)
    parts: list[RenderableType] = [_heading(asked, grid, look)]
    parts += _maps(grid, console.width, look) if heatmap else _table(asked, grid, console, look)
    budgets = spread(len(grid.axes.budget), MOST_BUDGETS)
    shown = [grid.axes.budget[index] for index in budgets]
    said = _lines(outlook(outlooks(asked.setup, shown, grid.axes.gamma)), look)
    parts.append(Group(said, Text(LARGE_BATCHES, "dim")))
    parts.append(memory_table(asked, console.width, look))
    parts.append(_lines(conclusion(grid, budgets), look))
    for index, part in enumerate(parts):
        if index:
            console.print()
        console.print(part)


def speedup_map(grid: Grid, budget: int) -> Map:
    """The fastest γ of one budget, by its index, with rising axes."""
    rows, columns = np.argsort(grid.axes.batch), np.argsort(grid.axes.context)
    here = np.ix_(rows, columns)
    return Map(
        tuple(sorted(grid.axes.batch)), tuple(sorted(grid.axes.context)),
        grid.at_best(grid.speedup)[:, :, budget][here],
        grid.at_best(grid.fits)[:, :, budget][here],
    )  # fmt: skip


def map_title(grid: Grid, budget: int) -> str:
    """What a map shows, with the drafts it chose among."""
    gammas = grid.axes.gamma
    drafts = f"γ {gammas[0]}" if len(gammas) == 1 else f"best γ of {_listed(gammas)}"
    return f"speedup, {drafts}, budget {budget_text(grid.axes.budget[budget])}"


def headline(asked: Question, grid: Grid) -> str:
    """Model, hardware, drafting and acceptance on one line."""
    setup = asked.setup
    drafting = setup.drafting
    itself = drafting.model is None and drafting.host is None
    who = "self-speculation" if itself else f"{drafting.who} drafts"
    if drafting.weights != "same":
        who += f", {drafting.weights} weights"
    rates = setup.acceptance.rates
    alpha = f"{rates[0]:.3g}" if setup.acceptance.constant else ", ".join(f"{a:.3g}" for a in rates)
    budgets = [str(budget_text(budget)) for budget in grid.axes.budget]
    if len(budgets) > MOST_BUDGETS:
        budgets = [f"{budgets[0]} to {budgets[-1]}"]
    read = "" if drafting.host is not None else f", budget {', '.join(budgets)}"
    return f"{setup.target.name} on {setup.hardware.label} · {who}{read} · α {alpha}"


def _heading(asked: Question, grid: Grid, look: Symbols) -> RenderableType:
    lines = [Text(plain_text(headline(asked, grid), look), "bold")]
    lines.append(Text(plain_text(f"costs: {provenance(asked)}", look), "dim"))
    lines += [Text(plain_text(f"note: {note}", look), "yellow") for note in asked.notes]
    return Group(*lines)


def provenance(asked: Question) -> str:
    """Where the costs come from and how well they fit; what follows is for the JSON document."""
    return "; ".join(asked.setup.hardware.provenance.split("; ")[:2])


def _table(
    asked: Question, grid: Grid, console: Console, look: Symbols
) -> Iterator[RenderableType]:
    shown = columns(asked.setup.target_speedup, len(grid.axes.budget) > 1)
    table, left_out = render(best_rows(grid), shown, console.width, look)
    said = []
    rest = asked.setup.hardware.constants.step_s
    if rest:
        said.append(f"a step of γ drafts and a verify pass takes {milliseconds(rest)} ms besides")
    said.append(
        "bound: what takes most of T_T, T_D, T_V: "
        + ", ".join(f"{name[0].upper()} {name}" for name in _bounds(asked))
    )
    if not grid.at_best(grid.fits).all():
        said.append("! does not fit in memory")
    if left_out:
        said.append(f"no room for: {', '.join(left_out)}; --format csv has all")
    yield Group(table, *(Text(plain_text(line, look), "dim") for line in said))


def _bounds(asked: Question) -> tuple[str, ...]:
    """Selection is named only where there is some."""
    return ALL_BOUNDS if asked.setup.drafting.select_per_token else BOUNDS


def _lines(said: list[str], look: Symbols) -> RenderableType:
    return Group(*(Text(plain_text(line, look)) for line in said))


def _maps(grid: Grid, width: int, look: Symbols) -> Iterator[RenderableType]:
    for budget in spread(len(grid.axes.budget), MOST_BUDGETS):
        lines = heat_lines(speedup_map(grid, budget), width, look)
        title = f"{map_title(grid, budget)}; batch down, context across"
        yield Group(Text(plain_text(title, look), "bold"), *lines)


def _listed(gammas: tuple[int, ...]) -> str:
    if gammas == tuple(range(gammas[0], gammas[-1] + 1)):
        return f"{gammas[0]} to {gammas[-1]}"
    return ", ".join(map(str, gammas))
