"""The page of `magicdec predict` for people: what was asked, the grid, memory, a conclusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from magicdec.cli.console import Symbols, symbols
from magicdec.cli.heatmap import Map, heat_lines
from magicdec.cli.predict_input import Question
from magicdec.cli.predict_table import best_rows, columns, render
from magicdec.cli.predict_words import conclusion
from magicdec.cli.report_view import size_text
from magicdec.engine.errors import require
from magicdec.profiles.costs.grid import ALL_BOUNDS, Grid
from magicdec.profiles.costs.modes import Mode, Room, modes, room
from magicdec.profiles.costs.passes import BOUNDS
from magicdec.profiles.predictions import budget_text

MOST_TABLE_ROWS = 500
MODE_TITLES = {
    "plain": "plain", "standard": "standard", "sparse_self": "sparse self",
    "sparse_model": "sparse model",
}  # fmt: skip
GREEK = {"γ": "gamma", "α": "alpha", "Ω": "omega", "×": "x", "·": "-"}


def print_page(console: Console, asked: Question, grid: Grid, heatmap: bool) -> None:
    """Writes the whole page. Raises ConfigError for a grid that no table can show."""
    rows = grid.best.size
    require(
        heatmap or rows <= MOST_TABLE_ROWS,
        f"{rows:,} rows are too many for a table; add --heatmap, or --format csv for all cells",
    )
    look = symbols(console)
    parts: list[RenderableType] = [_heading(asked, grid, look)]
    parts += _maps(grid, console.width, look) if heatmap else _table(asked, grid, console, look)
    parts.append(capacity(asked, look))
    parts.append(Group(*(Text(_ascii(line, look)) for line in conclusion(grid))))
    for index, part in enumerate(parts):
        if index:
            console.print()
        console.print(part)


def speedup_map(grid: Grid, budget: int) -> Map:
    """The fastest γ of one budget, by its index."""
    return Map(
        grid.axes.batch, grid.axes.context,
        grid.at_best(grid.speedup)[:, :, budget], grid.at_best(grid.fits)[:, :, budget],
    )  # fmt: skip


def map_title(grid: Grid, budget: int) -> str:
    """What a map shows, with the drafts it chose among."""
    gammas = grid.axes.gamma
    drafts = f"γ {gammas[0]}" if len(gammas) == 1 else f"the best γ of {_listed(gammas)}"
    return f"speedup with {drafts}, budget {budget_text(grid.axes.budget[budget])}"


def headline(asked: Question, grid: Grid) -> str:
    """Model, hardware, drafting and acceptance on one line."""
    setup = asked.setup
    who = setup.drafting.model.name if setup.drafting.model else "self-speculation"
    rates = setup.acceptance.rates
    alpha = f"{rates[0]:.3g}" if setup.acceptance.constant else " ".join(f"{a:.3g}" for a in rates)
    return (
        f"{setup.target.name} on {setup.hardware.label} · {who}, budget "
        f"{', '.join(str(budget_text(b)) for b in grid.axes.budget)} · α {alpha}"
    )


def _heading(asked: Question, grid: Grid, look: Symbols) -> RenderableType:
    setup = asked.setup
    lines = [Text(_ascii(headline(asked, grid), look), "bold")]
    lines.append(Text(f"costs: {setup.hardware.provenance}", "dim"))
    lines += [Text(_ascii(f"note: {note}", look), "yellow") for note in asked.notes]
    return Group(*lines)


def _table(
    asked: Question, grid: Grid, console: Console, look: Symbols
) -> Iterator[RenderableType]:
    shown = columns(asked.setup.target_speedup, len(grid.axes.budget) > 1)
    table, left_out = render(best_rows(grid), shown, console.width, look)
    said = [
        "bound: what takes most of T_T, T_D, T_V: "
        + ", ".join(f"{name[0].upper()} {name}" for name in _bounds(asked))
    ]
    if not grid.at_best(grid.fits).all():
        said.append("! does not fit in memory")
    if left_out:
        said.append(f"no room for: {', '.join(left_out)}; --format csv has all")
    yield Group(table, *(Text(_ascii(line, look), "dim") for line in said))


def _bounds(asked: Question) -> tuple[str, ...]:
    """Selection is named only where there is some."""
    return ALL_BOUNDS if asked.setup.drafting.select_per_token else BOUNDS


def _maps(grid: Grid, width: int, look: Symbols) -> Iterator[RenderableType]:
    for budget in range(len(grid.axes.budget)):
        lines = heat_lines(speedup_map(grid, budget), width, look)
        title = f"{map_title(grid, budget)}: batch (down) by context (across)"
        yield Group(Text(_ascii(title, look), "bold"), *lines)


def capacity(asked: Question, look: Symbols) -> RenderableType:
    """KV bytes of a row, and the largest batch of each mode, by context."""
    setup, axes = asked.setup, asked.axes
    compared = modes(setup, axes.budget[0], asked.standard)
    rooms = room(setup, axes, compared)
    device = setup.hardware.device
    weights = size_text(rooms[0].weights_bytes)
    lines = [
        Text(
            _ascii(
                f"largest batch that fits {setup.hardware.count} × "
                f"{size_text(device.memory_bytes)} less {setup.reserve:.0%}; weights {weights}", look,
            ), "bold",
        )
    ]  # fmt: skip
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in (
        "context",
        "full KV/row",
        "draft KV/row",
        *(MODE_TITLES[m.name] for m in compared),
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for start in range(0, min(len(rooms), 40 * len(compared)), len(compared)):
        here = rooms[start : start + len(compared)]
        draft = size_text(here[-1].draft_kv_row_bytes) if here[-1].mode.drafting else "-"
        table.add_row(
            f"{here[0].context:,}", size_text(here[0].full_kv_row_bytes), draft,
            *(f"{found.largest_batch:,}" for found in here),
        )  # fmt: skip
    meanings = [Text(_ascii(_meaning(mode, rooms), look), "dim") for mode in compared[1:]]
    return Group(*lines, table, *meanings)


def _meaning(mode: Mode, rooms: Sequence[Room]) -> str:
    drafting = mode.drafting
    assert drafting is not None, "plain decoding needs no explanation"
    extra = next(found.draft_weights_bytes for found in rooms if found.mode is mode)
    weights = f" and weights of {size_text(extra)}" if extra else ""
    if drafting.model is None:
        return f"{MODE_TITLES[mode.name]}: the model drafts with budget {budget_text(drafting.budget)}{weights}"
    kept = "its full KV cache" if drafting.budget is None else f"budget {drafting.budget:,}"
    return f"{MODE_TITLES[mode.name]}: {drafting.model.name} drafts with {kept}{weights}"


def _listed(gammas: tuple[int, ...]) -> str:
    if gammas == tuple(range(gammas[0], gammas[-1] + 1)):
        return f"{gammas[0]} to {gammas[-1]}"
    return ", ".join(map(str, gammas))


def _ascii(line: str, look: Symbols) -> str:
    """The line in the terminal's own characters."""
    if look.gamma == "γ":
        return line
    for symbol, name in GREEK.items():
        line = line.replace(symbol, name)
    return line
