"""Tables that leave out their less important columns where there is no room for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from magicdec.cli.output.console import Symbols, plain_text

GAP = 2
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """How one number is titled and written. The lower the rank, the earlier it gets room."""

    title: str
    rank: int
    write: Callable[[Row, Symbols], str | Text]
    left: bool = False


def render(
    rows: Sequence[Row], shown: Sequence[Column], width: int, look: Symbols
) -> tuple[Table, list[str]]:
    """The table, and the titles of the columns there was no room for."""
    cells = {column.title: [column.write(row, look) for row in rows] for column in shown}
    widths = {
        title: max([len(plain_text(title, look)), *(len(cell) for cell in written)])
        for title, written in cells.items()
    }
    kept, left = set[str](), width + GAP
    full = False
    for column in sorted(shown, key=lambda column: column.rank):
        left -= widths[column.title] + GAP
        full = full or left < 0
        if not full:
            kept.add(column.title)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    here = [column for column in shown if column.title in kept]
    for column in here:
        title = plain_text(column.title, look)
        table.add_column(title, justify="left" if column.left else "right", no_wrap=True)
    for index in range(len(rows)):
        table.add_row(*(cells[column.title][index] for column in here))
    return table, [column.title for column in shown if column.title not in kept]


def text_rows(rows: Sequence[Row], shown: Sequence[Column], look: Symbols) -> list[list[str]]:
    """The same cells as plain text, for Markdown."""
    return [[str(column.write(row, look)) for column in shown] for row in rows]
