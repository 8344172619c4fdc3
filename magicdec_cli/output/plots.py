"""Curves for a terminal through plotext, as text that rich may print or record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from rich.text import Text

from magicdec.cli.output.console import Symbols

MARKERS = "●▲■◆○△□◇"
ASCII_MARKERS = "ox+*#@%&"
BOXES = str.maketrans("┌┐└┘─│┤├┬┴┼", "++++-||||++")
COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")

Series = Mapping[str, Sequence[tuple[float, float]]]


def curves(
    series: Series,
    *,
    title: str,
    width: int,
    look: Symbols,
    height: int = 12,
    low: float | None = None,
    high: float | None = None,
    diagonal: bool = False,
) -> list[Text]:
    """One marker per series, its points joined by dots.

    `low` and `high` fix the y axis; `diagonal` gives x the same range and draws x = y instead of
    joining points. The legend stands below, so that it covers no point.
    """
    import plotext  # a tenth of a second

    plain = look.full == "#"
    markers = ASCII_MARKERS if plain else MARKERS
    dot = "." if plain else "·"
    places = sorted({x for points in series.values() for x, _ in points})[:12]
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(min(width, 78), height)
    if low is not None and high is not None:
        marks = [low + (high - low) * i / 4 for i in range(5)]
        plotext.ylim(low, high)
        plotext.yticks(marks, [f"{y:.2f}" for y in marks])
        if diagonal:
            places = marks
            plotext.xlim(low, high)
            xs, ys = _between([(low, low), (high, high)], width)
            plotext.scatter(xs, ys, marker=dot)
    for index, points in enumerate(series.values()):
        marker = markers[index % len(markers)]
        if not diagonal and len(points) > 1:
            plotext.scatter(*_between(points, min(width, 78)), marker=dot)
        plotext.scatter([x for x, _ in points], [y for _, y in points], marker=marker)
    plotext.xticks(places, [f"{x:.3g}" if diagonal else f"{x:g}" for x in places])
    drawn = plotext.uncolorize(plotext.build())
    plotext.clear_figure()
    if plain:
        drawn = drawn.translate(BOXES)
    lines = [Text(title, "bold")]
    lines += [_colored(line.rstrip(), markers) for line in drawn.splitlines()]
    legend = Text("  ")
    for index, name in enumerate(series):
        marker = markers[index % len(markers)]
        legend.append(f"{marker} ", COLORS[index % len(COLORS)]).append(f"{name}   ")
    return [*lines, legend]


def _between(points: Sequence[tuple[float, float]], width: int) -> tuple[list[float], list[float]]:
    """Points on the straight lines between measured ones, as dense as the columns are."""
    ordered = sorted(points)
    xs: list[float] = []
    ys: list[float] = []
    span = ordered[-1][0] - ordered[0][0] or 1.0
    for (x0, y0), (x1, y1) in pairwise(ordered):
        steps = max(int(width * (x1 - x0) / span), 1)
        xs += [x0 + (x1 - x0) * i / steps for i in range(1, steps)]
        ys += [y0 + (y1 - y0) * i / steps for i in range(1, steps)]
    return xs, ys


def _colored(line: str, markers: str) -> Text:
    text = Text(line, no_wrap=True, overflow="crop")
    for at, character in enumerate(line):
        if character in markers and markers is MARKERS:
            place = markers.index(character) % len(COLORS)
            text.stylize(COLORS[place], at, at + 1)
    return text
