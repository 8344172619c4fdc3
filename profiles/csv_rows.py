"""Rows of a CSV file whose first line names the columns; nothing of it is dropped in silence."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence

from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import clean, shown


def csv_rows(text: str, where: str) -> tuple[Sequence[str], Iterator[tuple[int, dict[str, str]]]]:
    """The columns, and every row with the number of its line; a row may end early.

    Raises ConfigError that names `where`: for a column named twice, and for a cell beyond the last
    column.
    """
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    columns = [name.strip() for name in _next(reader, where) or []]
    for name, uses in Counter(columns).items():
        if name and uses > 1:
            raise ConfigError(f"{where}: two columns are called {shown(name)}; leave one out")

    def rows() -> Iterator[tuple[int, dict[str, str]]]:
        while (cells := _next(reader, where)) is not None:
            for cell in cells[len(columns) :]:
                if cell.strip():
                    raise ConfigError(
                        f"{where}, line {reader.line_num}: {shown(cell)} stands beyond the "
                        f"{len(columns)} columns of the first line; name its column, or take it out"
                    )
            if cells:
                yield reader.line_num, dict(zip(columns, cells, strict=False))

    return columns, rows()


def _next(reader: Iterator[list[str]], where: str) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        raise ConfigError(f"{where}: not a CSV file: {clean(str(error))}") from error
