"""A map of the speedup, batch × context, for a terminal. Readable without colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from magicdec.cli.output.console import Symbols

MOST_ROWS = 24
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
# What a crossing of the break-even line looks like, by the arms it has.
HEAVY = {
    0: " ", UP: "┃", DOWN: "┃", LEFT: "━", RIGHT: "━", UP | DOWN: "┃", LEFT | RIGHT: "━",
    UP | RIGHT: "┗", UP | LEFT: "┛", DOWN | RIGHT: "┏", DOWN | LEFT: "┓", UP | DOWN | RIGHT: "┣",
    UP | DOWN | LEFT: "┫", DOWN | LEFT | RIGHT: "┳", UP | LEFT | RIGHT: "┻", 15: "╋",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Map:
    """Speedups [batch, context] with their axes, and which of the cells fit in memory."""

    batch: tuple[int, ...]
    context: tuple[int, ...]
    speedup: NDArray[np.float64]
    fits: NDArray[np.bool_]

    def thinned(self, rows: int, columns: int) -> Map:
        """At most so many rows and columns, evenly taken, the outer ones among them."""
        b, c = spread(len(self.batch), rows), spread(len(self.context), columns)
        return Map(
            tuple(self.batch[i] for i in b), tuple(self.context[i] for i in c),
            self.speedup[np.ix_(b, c)], self.fits[np.ix_(b, c)],
        )  # fmt: skip

    def left_out(self, drawn: Map) -> list[str]:
        """A line that says so when `drawn` is only a part of this."""
        if drawn.speedup.shape == self.speedup.shape:
            return []
        batches, contexts = drawn.speedup.shape
        return [
            f"{batches:,} of {len(self.batch):,} batches and {contexts:,} of "
            f"{len(self.context):,} contexts are shown"
        ]

    @property
    def pays(self) -> NDArray[np.bool_]:
        return self.speedup > 1


def heat_lines(shown: Map, width: int, look: Symbols) -> list[Text]:
    """The map with its axes and legend. Wide cells if they fit, else narrow, else fewer."""
    label = max(len("B"), *(len(f"{b:,}") for b in shown.batch)) + 1
    wide = label + 8 * len(shown.context) <= width
    cell = 7 if wide else 4
    drawn = shown.thinned(MOST_ROWS, max((width - label) // (cell + 1), 1))
    lines = [_heading(drawn, label, cell, wide)]
    for row in range(len(drawn.batch)):
        if row and _edge_below(drawn, row - 1).any():
            lines.append(_rule(drawn, row - 1, label, cell, look))
        lines.append(_row(drawn, row, label, cell, wide, look))
    lines += _legend(look)
    lines += [Text(line, "dim") for line in shown.left_out(drawn)]
    return lines


def color(speedup: float) -> tuple[int, int, int]:
    """From orange (slower) by near white (1) to blue (faster): safe for the colour-blind."""
    share = float(np.clip(np.log2(max(speedup, 1e-6)), -1, 2))
    end, most = ((8, 81, 156), 2.0) if share >= 0 else ((217, 95, 14), 1.0)
    share = abs(share) / most
    red, green, blue = (round(245 + (channel - 245) * share) for channel in end)
    return red, green, blue


def ink(background: tuple[int, int, int]) -> str:
    """Black or white, whichever is readable on it."""
    red, green, blue = background
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


def short(tokens: int) -> str:
    """At most four characters: 512, 1k, 1.5k, 128k."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            value = tokens / size
            return (
                f"{value:.1f}".removesuffix(".0") + unit if value < 9.95 else f"{value:.0f}{unit}"
            )
    return str(tokens)


def _heading(drawn: Map, label: int, cell: int, wide: bool) -> Text:
    names = [f"{c:,}" if wide else short(c) for c in drawn.context]
    return Text(f"{'B':>{label - 1}} " + "".join(f" {name:>{cell}}" for name in names), "bold")


def _row(drawn: Map, row: int, label: int, cell: int, wide: bool, look: Symbols) -> Text:
    line = Text.assemble((f"{drawn.batch[row]:>{label - 1},} ", "bold"))
    for column in range(len(drawn.context)):
        edge = column > 0 and drawn.pays[row, column - 1] != drawn.pays[row, column]
        line.append(_heavy(UP | DOWN if edge else 0, look), "bold")
        value, fits = float(drawn.speedup[row, column]), bool(drawn.fits[row, column])
        shown = _value(value, wide)
        mark = look.up if drawn.pays[row, column] else look.down
        text = f"{mark}{shown}{'' if fits else '!'}" if wide else f"{mark if fits else '!'}{shown}"
        background = color(value)
        red, green, blue = background
        style = f"{ink(background)} on rgb({red},{green},{blue})"
        line.append(f"{text:^{cell}}" if wide else f"{text:<{cell}}", style)
    return line


def _rule(drawn: Map, row: int, label: int, cell: int, look: Symbols) -> Text:
    """The line below `row`: heavy under cells whose lower neighbour is across break-even."""
    below, pays = _edge_below(drawn, row), drawn.pays
    line = Text(" " * label)
    for column in range(len(drawn.context)):
        arms = 0
        if column > 0:
            arms |= LEFT if below[column - 1] else 0
            arms |= UP if pays[row, column - 1] != pays[row, column] else 0
            arms |= DOWN if pays[row + 1, column - 1] != pays[row + 1, column] else 0
        arms |= RIGHT if below[column] and column > 0 else 0
        line.append(_heavy(arms, look), "bold")
        line.append(_heavy(LEFT | RIGHT if below[column] else 0, look) * cell, "bold")
    return line


def _edge_below(drawn: Map, row: int) -> NDArray[np.bool_]:
    return np.asarray(drawn.pays[row] != drawn.pays[row + 1])


def _heavy(arms: int, look: Symbols) -> str:
    if look.rule != "-":
        return HEAVY[arms]
    plain = {" ": " ", "┃": "|", "━": "="}
    return plain.get(HEAVY[arms], "+")


def _legend(look: Symbols) -> list[Text]:
    line = _heavy(LEFT | RIGHT, look) * 2 + _heavy(UP | DOWN, look)
    return [
        Text(
            f"{look.up} faster than plain decoding  {look.down} slower  {line} break-even  "
            f"! does not fit in memory", "dim",
        )
    ]  # fmt: skip


def _value(speedup: float, wide: bool) -> str:
    """At most four characters, narrow three; Ω and so the speedup stay far below 1,000."""
    if speedup < 9.95:
        return f"{speedup:.2f}" if wide else f"{speedup:.1f}"
    return f"{speedup:.1f}" if wide and speedup < 99.95 else f"{speedup:.0f}"


def spread(length: int, most: int) -> Sequence[int]:
    """At most so many of the first `length` indices, evenly taken, both ends among them."""
    if length <= most:
        return range(length)
    return [int(place) for place in np.linspace(0, length - 1, most).round()]
