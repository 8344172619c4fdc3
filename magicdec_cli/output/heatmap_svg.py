"""The map of the speedup as an SVG file of its own: no fonts or scripts from elsewhere."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from html import escape

from magicdec.cli.output.heatmap import Map, color, ink, short

LEFT, TOP, BOTTOM, RIGHT = 76, 64, 96, 24
MOST_WIDE, MOST_HIGH = 1400, 900  # pixels of the cells together
MOST_ROWS, MOST_COLUMNS = 150, 250
FONT = "font-family='system-ui, sans-serif'"


def heat_svg(shown: Map, title: str, notes: list[str]) -> str:
    """Cells with numbers where there is room, and the break-even line between them."""
    whole, shown = shown, shown.thinned(MOST_ROWS, MOST_COLUMNS)
    notes = [*whole.left_out(shown), *notes]
    rows, columns = len(shown.batch), len(shown.context)
    wide = min(max(MOST_WIDE / columns, 2.0), 76.0)
    high = min(max(MOST_HIGH / rows, 2.0), 34.0)
    width = max(LEFT + wide * columns + RIGHT, 760)
    notes = [line for note in notes for line in textwrap.wrap(note, int((width - LEFT) / 6.3))]
    height = TOP + high * rows + BOTTOM + 18 * len(notes)
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' "
        f"width='{width:.0f}' height='{height:.0f}' {FONT} font-size='13'>",
        f"<title>{escape(title)}</title>",
        "<rect width='100%' height='100%' fill='white'/>",
        _text(LEFT, 24, title, "font-size='15' font-weight='bold'"),
        *_cells(shown, wide, high),
        *_axes(shown, wide, high),
        f"<path d='{''.join(_break_even(shown, wide, high))}' fill='none' stroke='black' "
        f"stroke-width='{4 if min(wide, high) > 12 else 2}' stroke-linecap='round'/>",
        *_legend(TOP + high * rows + 58),
    ]
    for index, note in enumerate(notes):
        y = TOP + high * rows + 86 + 18 * index
        parts.append(_text(LEFT, y, note, "font-size='11' fill='#555'"))
    return "\n".join([*parts, "</svg>", ""])


def _cells(shown: Map, wide: float, high: float) -> Iterator[str]:
    for row in range(len(shown.batch)):
        for column in range(len(shown.context)):
            value, fits = float(shown.speedup[row, column]), bool(shown.fits[row, column])
            x, y = LEFT + column * wide, TOP + row * high
            background = color(value)
            yield (
                f"<rect x='{x:.1f}' y='{y:.1f}' width='{wide + 0.3:.1f}' height='{high + 0.3:.1f}' "
                f"fill='rgb{background}'/>"
            )
            if wide >= 44 and high >= 16:
                mark = f"{value:.2f}{'' if fits else '!'}"
                yield _text(
                    x + wide / 2, y + high / 2 + 4.5, mark,
                    f"text-anchor='middle' fill='{ink(background)}'",
                )  # fmt: skip
            elif not fits:
                yield (
                    f"<circle cx='{x + wide / 2:.1f}' cy='{y + high / 2:.1f}' "
                    f"r='{min(wide, high) / 6:.1f}' fill='{ink(background)}'/>"
                )


def _axes(shown: Map, wide: float, high: float) -> Iterator[str]:
    rows, columns = len(shown.batch), len(shown.context)
    for column in range(0, columns, max(1, round(40 / wide))):
        x = LEFT + (column + 0.5) * wide
        yield _text(x, TOP - 8, short(shown.context[column]), "text-anchor='middle'")
    for row in range(0, rows, max(1, round(16 / high))):
        y = TOP + (row + 0.5) * high + 4.5
        yield _text(LEFT - 8, y, f"{shown.batch[row]:,}", "text-anchor='end'")
    yield _text(LEFT, TOP + high * rows + 20, "context, tokens (across)", "fill='#555'")
    yield _text(LEFT, TOP + high * rows + 38, "batch, rows (down)", "fill='#555'")


def _break_even(shown: Map, wide: float, high: float) -> Iterator[str]:
    """A segment on every edge between a cell that pays and one that does not."""
    pays = shown.pays
    rows, columns = pays.shape
    for row in range(rows):
        for column in range(columns):
            x, y = LEFT + column * wide, TOP + row * high
            if column and pays[row, column - 1] != pays[row, column]:
                yield f"M{x:.1f} {y:.1f}v{high:.1f}"
            if row and pays[row - 1, column] != pays[row, column]:
                yield f"M{x:.1f} {y:.1f}h{wide:.1f}"


def _legend(y: float) -> Iterator[str]:
    x = float(LEFT)
    for value in (0.5, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0):
        background = color(value)
        yield f"<rect x='{x:.1f}' y='{y - 14:.1f}' width='36' height='18' fill='rgb{background}'/>"
        middle = f"text-anchor='middle' font-size='11' fill='{ink(background)}'"
        yield _text(x + 18, y - 1, f"{value:g}×", middle)
        x += 36
    yield f"<path d='M{x + 12:.1f} {y - 5:.1f}h24' stroke='black' stroke-width='4'/>"
    yield _text(x + 42, y, "break-even")
    yield _text(x + 122, y, "! or a dot: does not fit in memory")


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {style}>{escape(text)}</text>"
