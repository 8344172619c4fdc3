"""`magicdec profile show`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from magicdec.cli.output.columns import Column, Row, render
from magicdec.cli.output.console import TERMINAL, Symbols, symbols
from magicdec.cli.output.files import check_output, written
from magicdec.cli.output.numbers import cell_gamma, counted, rate, ratio_text
from magicdec.cli.output.tables import Format, print_json, print_listing
from magicdec.cli.profile.panels import (
    acceptance_curve,
    best_table,
    forecast_panel,
    phase_bars,
    position_bars,
    step_table,
)
from magicdec.profiles.export.registry import header_notes
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json
from magicdec.profiles.recorded.flat import flat_table, lossless_word
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import Cell, CellKey, Profile

MOST_CELLS = 60
MOST_ERRORS = 12
DRAFTER = 24  # characters, at most

COLUMNS = (
    Column("B", 0, lambda row, look: f"{_cell(row).key.batch:,}"),
    Column("context", 0, lambda row, look: f"{_cell(row).key.context:,}"),
    Column("drafter", 0, lambda row, look: clipped(_cell(row).key.way), left=True),
    Column("γ", 0, lambda row, look: cell_gamma(_cell(row), most=True)),
    Column("speedup", 1, lambda row, look: _doubted(_cell(row), look)),
    Column("lossless", 2, lambda row, look: verdict(_cell(row), look), left=True),
    Column("accept", 3, lambda row, look: rate(_cell(row).acceptance_rate)),
    Column("length", 4, lambda row, look: _number(_cell(row).mean_acceptance_length, 2)),
    Column("tokens/s", 5, lambda row, look: _number(_cell(row).tokens_per_s, 1)),
    Column("weights", 6, lambda row, look: _cell(row).key.draft_weights, left=True),
    Column("predicted", 7, lambda row, look: _ratio(_predicted(_cell(row)), look)),
    Column("plain tokens/s", 8, lambda row, look: _number(_cell(row).plain_tokens_per_s, 1)),
)


def cell_table(profile: Profile, width: int, look: Symbols) -> list[RenderableType]:
    """A line per cell, what failed included; `speedup` is the median of the repeats."""
    cells = ordered(profile)
    rows: list[Row] = [{"cell": cell} for cell in cells[:MOST_CELLS]]
    table, left_out = render(rows, COLUMNS, width, look)
    lines = [
        Text(f"{look.cross} {_label(cell, look)}: {cell.error or 'failed'}", "red")
        for cell in cells
        if cell.status == "failed"
    ]
    below = lines[:MOST_ERRORS]
    if len(lines) > MOST_ERRORS:
        below.append(Text(f"and {len(lines) - MOST_ERRORS:,} more that failed", "red"))
    if any(cell.disturbed for cell in cells[:MOST_CELLS]):
        below.append(Text("? a disturbed measurement: the machine had other work", "dim"))
    if len(cells) > MOST_CELLS:
        more = len(cells) - MOST_CELLS
        below.append(Text(f"and {more:,} more cells; --format csv has all", "dim"))
    if left_out:
        below.append(Text(f"no room for: {', '.join(left_out)}; --format csv has all", "dim"))
    return [table, *below]


def ordered(profile: Profile) -> Sequence[Cell]:
    return sorted(profile.cells, key=lambda cell: cell.key)


def clipped(text: str) -> str:
    """A drafter's name as long as a table can bear: who drafts begins it, and how far ends it."""
    return text if len(text) <= DRAFTER else f"{text[:11]}..{text[13 - DRAFTER :]}"


def verdict(cell: Cell, look: Symbols) -> Text:
    if cell.status == "failed":
        return Text(f"{look.cross} not run", "red")
    word = lossless_word(cell)
    mark, style = {
        "identical": (look.check, "green"), "ties": (look.tie, "yellow"),
        "failed": (look.cross, "bold red"), "unchecked": ("-", "dim"),
    }[word]  # fmt: skip
    return Text(f"{mark} {word}", style)


def _cell(row: Row) -> Cell:
    cell: Cell = row["cell"]
    return cell


def _label(cell: Cell, look: Symbols) -> str:
    return cell.key.label.replace("γ", look.gamma)


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def _ratio(value: float | None, look: Symbols) -> Text:
    return Text("-") if value is None else ratio_text(value, look)


def _doubted(cell: Cell, look: Symbols) -> Text:
    """With a mark behind what was measured while the machine had other work."""
    ratio = _ratio(cell.speedup, look)
    return ratio.append("?", "yellow") if cell.disturbed and cell.speedup else ratio


def _predicted(cell: Cell) -> float | None:
    return cell.predicted.speedup if cell.predicted else None


SVG_WIDTH, PANEL_WIDTH = 120, 100


def run_show(path: str, format: Format, svg: Path | None) -> None:
    if svg is not None:
        check_output(svg, "--svg", inputs=[path])
    profile = read_profile(path)
    for warning in profile.warnings:
        TERMINAL.note(f"warning: {warning}")
    if svg is not None:
        _save(profile, svg)
    if format == "json":
        document = header_to_json(profile.header)
        print_json(document | {"cells": [cell_to_json(cell) for cell in profile.cells]})
    elif format == "table":
        print_profile(TERMINAL.out, profile)
    elif profile.cells:
        print_listing(*flat_table(profile.cells, sparse=format == "csv"), format)


def print_profile(console: Console, profile: Profile) -> None:
    for part in _parts(console, profile):
        console.print(part)
        console.print()


def _parts(console: Console, profile: Profile) -> Iterator[RenderableType]:
    look, width = symbols(console), min(console.width, PANEL_WIDTH)
    done, failed = len(profile.finished), len(profile.cells) - len(profile.finished)
    total = counted(done, "cell") + (f", {failed:,} failed" if failed else "")
    drafts = sorted({_drafts(cell.key) for cell in profile.cells})
    lines = [*header_notes(profile.header), *(f"drafts: {text}" for text in drafts)]
    yield Group(*map(Text, lines), Text(total, "bold"))
    if not profile.cells:
        return
    yield Group(*cell_table(profile, console.width, look))
    panels: Iterable[list[Text] | None] = (
        best_table(profile, width, look),
        acceptance_curve(profile, width, look),
        position_bars(profile, width, look),
        phase_bars(profile, width, look),
        step_table(profile, look),
        forecast_panel(profile, width, look),
    )
    for panel in panels:
        if panel:
            yield Group(*panel)


def _drafts(key: CellKey) -> str:
    """What the cells' table has no column for."""
    options = "".join(f", {name}={value}" for name, value in key.selector_options)
    drawn = f"temperature {key.temperature:g}" if key.temperature else "greedy"
    return f"{drawn}, {key.draft_weights} weights{options}"


def _save(profile: Profile, path: Path) -> None:
    console = Console(
        width=SVG_WIDTH, record=True, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False,
    )  # fmt: skip
    print_profile(console, profile)
    with written(path) as file:
        file.write(console.export_svg(title="magicdec profile show"))
    TERMINAL.note(f"wrote {path}")
