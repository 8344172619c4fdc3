"""The page of `magicdec predict` for people: what was asked, the grid, memory, a conclusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from magicdec.cli.output.columns import Column, Row, render
from magicdec.cli.output.console import Symbols, plain_text, symbols
from magicdec.cli.output.heatmap import Map, heat_lines, spread
from magicdec.cli.output.numbers import rate, ratio_text
from magicdec.cli.predict.question import Question
from magicdec.cli.predict.words import LARGE_BATCHES, conclusion, outlook
from magicdec.cli.run.report import size_text
from magicdec.engine.errors import require
from magicdec.profiles.costs.break_even import outlooks
from magicdec.profiles.costs.grid import ALL_BOUNDS, Grid
from magicdec.profiles.costs.modes import Mode, Room, modes, room
from magicdec.profiles.costs.roofline import BOUNDS
from magicdec.profiles.predict.record import budget_text

MOST_CONTEXTS = 10
TITLES = {
    "plain": "plain", "standard": "standard", "sparse_self": "sparse self",
    "sparse_model": "sparse model",
}  # fmt: skip


def memory_table(asked: Question, width: int, look: Symbols) -> RenderableType:
    """By context, for the first budget; with more contexts than fit a page, some of them."""
    setup, axes = asked.setup, asked.axes
    compared = modes(setup, axes.budget[0], asked.standard)
    rooms = room(setup, axes, compared)
    shown = spread(len(axes.context), MOST_CONTEXTS)
    rows: list[Row] = []
    for index in shown:
        here = rooms[index * len(compared) : (index + 1) * len(compared)]
        sizes = (here[0].full_kv_row_bytes, here[-1].draft_kv_row_bytes)
        counts = {found.mode.name: found.largest_batch for found in here}
        rows.append({"context": here[0].context, "full": sizes[0], "draft": sizes[1], **counts})
    columns = [_count("context", 0, "context"), _size("full KV/row", 2, "full")]
    if setup.drafting.host is None:  # lookup keeps none; what the last mode keeps is not its own
        columns.append(_size("draft KV/row", 3, "draft"))
    columns += [_count(TITLES[mode.name], 1, mode.name) for mode in compared]
    table, _ = render(rows, columns, width, look)
    said = [_meaning(mode, rooms) for mode in compared[1:]]
    if len(shown) < len(axes.context):
        said.insert(0, f"{len(shown)} of {len(axes.context)} contexts are shown")
    return Group(
        Text(plain_text(_title(asked, rooms[0]), look), "bold"),
        table,
        *(Text(plain_text(line, look), "dim") for line in said),
    )


def _count(title: str, rank: int, name: str) -> Column:
    return Column(title, rank, lambda row, look: f"{row[name]:,}")


def _size(title: str, rank: int, name: str) -> Column:
    return Column(title, rank, lambda row, look: size_text(row[name]))


def _title(asked: Question, plain: Room) -> str:
    hardware = asked.setup.hardware
    size = size_text(hardware.device.memory_bytes)
    memory = size if hardware.count == 1 else f"{hardware.count} × {size}"
    kept = f" less {asked.setup.reserve:.0%}" if asked.setup.reserve else ""
    return f"largest batch that fits {memory}{kept}; weights {size_text(plain.weights_bytes)}"


def _meaning(mode: Mode, rooms: Sequence[Room]) -> str:
    drafting = mode.drafting
    assert drafting is not None, "plain decoding needs no explanation"
    extra = next(found.draft_weights_bytes for found in rooms if found.mode is mode)
    weights = f" and weights of {size_text(extra)}" if extra else ""
    kept = "its full KV cache" if drafting.budget is None else f"budget {drafting.budget:,}"
    return f"{TITLES[mode.name]}: {drafting.who} drafts with {kept}{weights}"


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
    asked = 6 if target_speedup == 1 else 1  # who names a speedup wants its α
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
        Column(target, asked, lambda row, look: _alpha(row["required_alpha"])),
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
