"""Runs a sweep: group by group, cell by cell, each written before the next begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import MagicdecError, WrongWeightsError
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.passes import Listener, Passes
from magicdec.profiles.recording.measuring import Bench, Predict, Prepare
from magicdec.profiles.recording.plan import Group, groups
from magicdec.profiles.storage.from_reports import failed_cell
from magicdec.profiles.storage.schema import Cell, CellKey
from magicdec.profiles.storage.writing import ProfileWriter

#: (batch, context) to rows; raises ConfigError when the documents cannot fill them.
MakeRows = Callable[[int, int], Sequence[Request]]


@dataclass(frozen=True, slots=True)
class Progress:
    """Before a cell (`cell` is None) or after it; seconds_left is None before the first is done."""

    key: CellKey
    done: int
    total: int
    seconds_left: float | None
    cell: Cell | None = None


@dataclass(slots=True)
class Recording:
    """Everything but what is to be measured."""

    session: Session
    make_rows: MakeRows
    repeats: int
    listen: Listener
    tell: Callable[[Progress], None]
    predict: Predict
    prepare: Prepare
    unwritten: Callable[[Cell], str]  # shows the cell that could not be written, and says where

    def run(self, cells: Mapping[CellKey, DecodeConfig], writer: ProfileWriter) -> None:
        """Measures each cell with its settings, but for those that the file has. One that fails is
        written as failed, and the sweep goes on.

        Raises OSError when the file cannot be written.
        """
        todo = groups(list(cells), writer.finished)
        total, done, begun = sum(len(group.cells) for group in todo), 0, time.monotonic()
        for group in todo:
            measure = self._measure(group)
            for key in group.cells:
                spent = time.monotonic() - begun
                left = spent / done * (total - done) if done else None
                self.tell(Progress(key, done, total, left))
                try:
                    cell = measure(key, cells[key])
                except WrongWeightsError:  # no cell of them counts
                    raise
                except Exception as error:  # whatever it is, the other cells can be measured
                    cell = failed_cell(key, _reason(error))
                try:
                    writer.append(cell)
                except OSError as error:
                    error.add_note(self.unwritten(cell))
                    raise
                done += 1
                left = (time.monotonic() - begun) / done * (total - done)
                self.tell(Progress(key, done, total, left, cell))

    def _measure(self, group: Group) -> Callable[[CellKey, DecodeConfig], Cell]:
        """Measures cells of a group. Its rows are made with the first cell that needs them."""
        made: list[Bench] = []

        def measure(key: CellKey, config: DecodeConfig) -> Cell:
            if not made:
                rows = self.make_rows(group.batch, group.context)
                passes = Passes(self.session, rows, group.batch)
                made.append(Bench(passes, self.listen, self.predict, self.prepare))
            return made[0].measure(key, config, self.repeats)

        return measure


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())
    return (said if isinstance(error, MagicdecError) else f"{type(error).__name__}: {said}")[:1000]
