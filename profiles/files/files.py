"""Writes files whole, there complete or as they were before; reads CSV rows."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import clean, shown
from magicdec.profiles.files.locking import lock

PREFIX, LOCK = ".magicdec-", ".magicdec-lock"


@contextmanager
def replacing(path: Path, *, kept: bool = False) -> Iterator[Path]:
    """Yields a file to write, which takes the place of `path` in one step at the end.

    An error leaves `path` as it was, and so does an interrupt, unless what is finished by then is
    to be `kept`. A link stays one: what it points to is replaced. What cannot be replaced, a pipe,
    a device, or a file in a folder that is not the user's, is yielded itself. What a killed process
    left beside it goes. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    there = path.exists()
    if there and not (path.is_file() and os.access(target.parent, os.W_OK)):
        yield path
        return
    _sweep(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=PREFIX) as folder:
        new = Path(folder) / f"{LOCK}-new"
        with new.open("wb") as held:
            lock(held)
            new.rename(Path(folder) / LOCK)  # never there without being held
            made = Path(folder) / target.name
            try:
                yield made
            except KeyboardInterrupt:
                if kept and made.exists():
                    _replace(target, made, there)
                raise
            _replace(target, made, there)


def _sweep(parent: Path) -> None:
    """Deletes folders whose lock nobody holds: a process that was killed let go of it."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError), (folder / LOCK).open("rb") as file:
            if lock(file, unknown=False):
                shutil.rmtree(folder, ignore_errors=True)


def _replace(target: Path, made: Path, there: bool) -> None:
    if there:
        shutil.copymode(target, made)
    os.replace(made, target)


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
