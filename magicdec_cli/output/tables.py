"""Listings as table, JSON, Markdown or CSV."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Sequence
from typing import Literal, TextIO

from magicdec.cli.output.console import TERMINAL, spelled
from magicdec.engine.untrusted import for_spreadsheet

Format = Literal["table", "json", "md", "csv"]
Cell = str | int | float | bool | None | list[object] | dict[str, object]


UNBROKEN = 24  # cells up to this width stay on one line, longer columns share the rest


def print_listing(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    format: Format,
    stream: TextIO | None = None,
) -> None:
    """Writes rows to stdout. JSON keeps types; the others show text, nothing for None. Markdown is
    for people: its numbers have four digits.

    `stream` takes all but tables elsewhere.
    """
    if format == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows], stream)
        return
    text = [[_text(cell) for cell in row] for row in rows]
    if format == "csv":
        writer = csv.writer(stream or sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            [cell if isinstance(given, int | float) else for_spreadsheet(cell)
             for cell, given in zip(written, row, strict=True)]
            for written, row in zip(text, rows, strict=True)
        )  # fmt: skip
    elif format == "md":
        text = [[_short(cell) for cell in row] for row in rows]
        print("| " + " | ".join(columns) + " |", file=stream)
        print("|" + " --- |" * len(columns), file=stream)
        for line in text:
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |", file=stream)
    else:
        _print_table(columns, text)


def _short(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) and abs(cell) < 1e4 else _text(cell)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    columns = list(map(spelled, columns))
    rows = [list(map(spelled, row)) for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        longest = max([len(column), *(len(row[index]) for row in rows)])
        table.add_column(column, overflow="fold", no_wrap=longest <= UNBROKEN)
    for row in rows:
        table.add_row(Text(row[0], "cyan"), *map(Text, row[1:]))
    TERMINAL.out.print(table)


def print_json(document: object, stream: TextIO | None = None) -> None:
    """Exactly one document on stdout or `stream`, readable where the encoding allows it."""
    utf8 = ((stream or sys.stdout).encoding or "ascii").lower().replace("-", "").startswith("utf8")
    text = json.dumps(document, indent=2, ensure_ascii=not utf8, default=str, allow_nan=False)
    # One line per array of numbers. Strings cannot match: JSON escapes their line breaks.
    text = re.sub(r"\[\n[^\[\]{}\"]*\]", lambda found: _one_line(found[0]), text)
    print(text, file=stream)


def _text(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return str(cell).lower()
        case list():
            return ", ".join(str(item) for item in cell)
        case dict():
            return ", ".join(f"{key}={value}" for key, value in cell.items())
    return str(cell)


def _one_line(array: str) -> str:
    return "[" + ", ".join(item.strip() for item in array[1:-1].split(",")) + "]"
