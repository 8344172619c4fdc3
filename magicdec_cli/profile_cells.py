"""The cells of a profile as a table, and what the table has no room for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from magicdec.cli.bars import rate
from magicdec.cli.columns import Column, Row, render
from magicdec.cli.console import Symbols
from magicdec.cli.gamma_view import cell_gamma
from magicdec.cli.number_lines import ratio_text
from magicdec.profiles.storage.flat import lossless_word
from magicdec.profiles.storage.schema import Cell, Profile

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
