"""Small graphs in text: a rate over time on a fixed 0..1 scale, and curves with points on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from rich.text import Text

from magicdec.cli.output.console import Symbols

LEVELS = " ▁▂▃▄▅▆▇█"
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # [row][column] of a cell
FINE_ROWS, FINE_COLUMNS = 4, 2


def share_graph(
    values: Sequence[float], width: int, height: int, style: str, symbols: Symbols
) -> list[Text]:
    """Columns of the values, 0 to 1, with a scale at the left; `height` lines."""
    plain = symbols.rule == "-"
    bar, corner = ("|", "+") if plain else ("│", "└")
    columns = width - 4
    lines = []
    for row in range(height):
        top, middle = row == 0, height > 4 and row == (height - 1) // 2
        label = "1.0" if top else "0.5" if middle else "   "
        cells = [_level(value * height - (height - 1 - row), plain) for value in values[-columns:]]
        line = Text.assemble((f"{label}{bar}", "dim"), ("".join(cells), style), no_wrap=True)
        lines.append(line)
    if height > 1:
        lines[-1].plain = f"0.0{corner}" + lines[-1].plain[4:]
    return lines


def _level(filled: float, plain: bool) -> str:
    """One cell of a column whose value reaches `filled` cells into it."""
    if plain:
        return "#" if filled >= 0.5 else " "
    return LEVELS[round(min(max(filled, 0.0), 1.0) * 8)]


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    mark: str
    style: str


@dataclass(slots=True)
class _Plot:
    """Maps values to fine cells: 2 columns and 4 rows of dots in each character."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float
    columns: int
    rows: int
    logarithmic: bool

    def place(self, x: float, y: float) -> tuple[int, int]:
        """Fine column and row, from the left and the top."""
        low, high = self.low_x, self.high_x
        if self.logarithmic:
            x, low, high = math.log(x), math.log(low), math.log(high)
        across = (x - low) / (high - low) if high > low else 0.5
        up = (y - self.low_y) / (self.high_y - self.low_y)
        column = round(across * (self.columns * FINE_COLUMNS - 1))
        row = round((1 - up) * (self.rows * FINE_ROWS - 1))
        return column, row


def curve_graph(
    line: Sequence[tuple[float, float]],
    points: Sequence[Point],
    *,
    width: int,
    height: int,
    ticks: Sequence[float],
    logarithmic: bool,
    symbols: Symbols,
    base: float = 1.0,
) -> list[Text]:
    """A line, points on it, and the level y = `base`; `height` lines, scales included.

    x must be positive where it is `logarithmic`. The y range follows the data and is labelled.
    """
    plain = symbols.rule == "-"
    ys = [y for _, y in line] + [point.y for point in points] + [base]
    xs = [x for x, _ in line] or list(ticks)  # without a line the ticks say how far it goes
    xs += [point.x for point in points]
    margin = max((max(ys) - min(ys)) * 0.08, 0.02)
    columns, rows = width - 6, height - 2
    plot = _Plot(
        min(xs), max(xs), min(ys) - margin, max(ys) + margin, columns, rows, logarithmic
    )  # fmt: skip
    fine: set[tuple[int, int]] = set()
    for (x0, y0), (x1, y1) in pairwise(line):
        fine |= _segment(plot.place(x0, y0), plot.place(x1, y1))
    level = plot.place(plot.low_x, base)[1] // FINE_ROWS
    grid = [_row(fine, row, columns, row == level, plain) for row in range(rows)]
    styles = {(row, column): "cyan" for row in range(rows) for column in range(columns)}
    for row in range(rows):
        for column in range(columns):
            if not _dots(fine, row, column):
                styles[row, column] = "dim"
    for point in points:
        column, row = plot.place(point.x, point.y)
        at = row // FINE_ROWS, column // FINE_COLUMNS
        grid[at[0]][at[1]], styles[at] = point.mark, point.style
    lines = _labelled(grid, styles, plot, level, base, plain)
    return [*lines, *_ticks(plot, ticks, width, plain)]


def _segment(start: tuple[int, int], end: tuple[int, int]) -> set[tuple[int, int]]:
    """The fine cells from one to the other."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return {
        (
            round(start[0] + (end[0] - start[0]) * i / steps),
            round(start[1] + (end[1] - start[1]) * i / steps),
        )
        for i in range(steps + 1)
    }


def _dots(fine: set[tuple[int, int]], row: int, column: int) -> int:
    found = 0
    for down in range(FINE_ROWS):
        for right in range(FINE_COLUMNS):
            if (column * FINE_COLUMNS + right, row * FINE_ROWS + down) in fine:
                found |= DOTS[down][right]
    return found


def _row(fine: set[tuple[int, int]], row: int, columns: int, level: bool, plain: bool) -> list[str]:
    empty = ("-" if plain else "┄") if level else " "
    cells = []
    for column in range(columns):
        dots = _dots(fine, row, column)
        cells.append(("." if plain else chr(BRAILLE + dots)) if dots else empty)
    return cells


def _labelled(
    grid: list[list[str]], styles: dict[tuple[int, int], str], plot: _Plot, level: int,
    base: float, plain: bool,
) -> list[Text]:  # fmt: skip
    lines = []
    for row, cells in enumerate(grid):
        value = None
        if row == level:
            value = base
        elif row == 0:
            value = plot.high_y
        elif row == len(grid) - 1:
            value = plot.low_y
        label = "     " if value is None else f"{value:5.2f}"
        text = Text.assemble((label + ("|" if plain else "│"), "dim"), no_wrap=True)
        for style, run in groupby(range(len(cells)), lambda column: styles[row, column]):  # noqa: B023
            text.append("".join(cells[column] for column in run), style)
        lines.append(text)
    return lines


def _ticks(plot: _Plot, ticks: Sequence[float], width: int, plain: bool) -> list[Text]:
    axis = list("     " + ("+" if plain else "└") + ("-" if plain else "─") * (width - 6))
    labels = [" "] * width
    free = 0
    for tick in sorted(ticks):
        if not plot.low_x <= tick <= plot.high_x:
            continue
        at = 6 + plot.place(tick, plot.low_y)[0] // FINE_COLUMNS
        text = f"{tick:,.0f}" if tick == int(tick) else f"{tick:g}"
        start = min(max(at - len(text) // 2, 0), width - len(text))
        axis[at] = "+" if plain else "┴"
        if start >= free:
            labels[start : start + len(text)] = text
            free = start + len(text) + 1
    return [Text("".join(axis), "dim", no_wrap=True), Text("".join(labels), "dim", no_wrap=True)]
