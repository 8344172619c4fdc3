"""Writes a prediction: the page, Markdown, CSV, JSON lines or JSON, to stdout or a file."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

from magicdec.cli.interrupts import INTERRUPTED, hold
from magicdec.cli.output.console import TERMINAL, Symbols
from magicdec.cli.output.files import written
from magicdec.cli.output.tables import print_json, print_listing
from magicdec.cli.predict.question import Question
from magicdec.engine.errors import require
from magicdec.engine.untrusted import for_spreadsheet
from magicdec.profiles.costs.grid import Grid

MOST_THRESHOLDS = 32  # budgets in the JSON document that have them


def deliver(
    asked: Question, grid: Grid, format: str, output: Path | None, heatmap: bool
) -> int | None:
    """Writes all of it; of rows, Ctrl-C keeps those that are written by then.

    Raises ConfigError for a file that cannot be written, and for a grid that no table can show.
    """
    if format == "table":
        from magicdec.cli.predict.page import refuse_long_table

        refuse_long_table(grid, heatmap)
    else:
        for note in asked.notes:
            TERMINAL.note(f"note: {note}")
    by_row = format in ("csv", "jsonl")
    if not by_row:  # it is all there, and only whole
        hold()
    try:
        with nullcontext(sys.stdout) if output is None else written(output, kept=by_row) as stream:
            if format == "table":
                _page(asked, grid, stream, heatmap)
            elif format == "md":
                _markdown(asked, grid, stream)
            elif format == "json":
                _document(asked, grid, stream)
            else:
                _flat(asked, grid, stream, format)
    except KeyboardInterrupt:
        if output is None:
            raise
        kept = "holds the rows finished so far" if by_row else "is not written"
        TERMINAL.note(f"interrupted: {output} {kept}")
        return INTERRUPTED
    return None


def draw(asked: Question, grid: Grid, path: Path) -> None:
    """Draws the map of one budget as SVG. Raises ConfigError as `deliver` does."""
    from magicdec.cli.output.heatmap_svg import heat_svg
    from magicdec.cli.predict.page import headline, map_title, provenance, speedup_map

    require(
        len(grid.axes.budget) == 1,
        f"--svg draws one budget, not {len(grid.axes.budget)}; give --budget one value",
    )
    notes = [map_title(grid, 0), f"costs: {provenance(asked)}", *asked.notes]
    with written(path) as stream:
        stream.write(heat_svg(speedup_map(grid, 0), headline(asked, grid), notes))


def _page(asked: Question, grid: Grid, stream: TextIO, heatmap: bool) -> None:
    from magicdec.cli.output.console import make_console
    from magicdec.cli.predict.page import print_page

    console = TERMINAL.out if stream is sys.stdout else make_console(stream, TERMINAL.color)
    print_page(console, asked, grid, heatmap)


def _markdown(asked: Question, grid: Grid, stream: TextIO) -> None:
    from magicdec.cli.output.columns import text_rows
    from magicdec.cli.predict.page import best_rows, columns

    shown = columns(asked.setup.target_speedup, several_budgets=True)
    cells = text_rows(best_rows(grid), shown, Symbols())
    print_listing([column.title for column in shown], cells, "md", stream)


def _document(asked: Question, grid: Grid, stream: TextIO) -> None:
    from magicdec.cli.output.heatmap import spread
    from magicdec.profiles.costs.break_even import outlooks
    from magicdec.profiles.costs.modes import modes, room
    from magicdec.profiles.predict.record import prediction_record

    axes = asked.axes
    shown = [axes.budget[index] for index in spread(len(axes.budget), MOST_THRESHOLDS)]
    rooms = [
        found
        for budget in axes.budget
        for found in room(asked.setup, axes, modes(asked.setup, budget, asked.standard))
    ]
    rooms = list(dict.fromkeys(rooms))  # plain and standard are the same for every budget
    print_json(
        prediction_record(
            asked.setup,
            grid,
            rooms,
            thresholds=outlooks(asked.setup, shown, axes.gamma),
            notes=asked.notes,
        ),
        stream,
    )


def _flat(asked: Question, grid: Grid, stream: TextIO, format: str) -> None:
    """One line per cell, with what tells the files of several predictions apart."""
    from magicdec.profiles.predict.record import cells

    setup = asked.setup
    drafting = setup.drafting
    itself = drafting.model is None and drafting.host is None
    context: dict[str, Any] = {
        "model": setup.target.name,
        "hardware": setup.hardware.label,
        "draft": "self" if itself else drafting.who,
    }
    rows = (context | cell for cell in cells(grid))
    if format == "jsonl":
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        stream.flush()
        return
    context |= {name: for_spreadsheet(text) for name, text in context.items()}
    first = next(rows)
    writer = csv.DictWriter(stream, list(first), lineterminator="\n")
    writer.writeheader()
    for row in itertools.chain([first], rows):
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
