"""Runs a sweep: group by group, cell by cell, each written before the next begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from magicdec.engine.config import DecodeConfig, DraftWeights, SamplingConfig
from magicdec.engine.errors import MagicdecError
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.passes import Listener, Passes
from magicdec.profiles.recording.measuring import Bench, Predict
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
    """base: what all cells share; its γ, drafter and temperature do not matter."""

    session: Session
    make_rows: MakeRows
    base: DecodeConfig
    repeats: int
    listen: Listener
    tell: Callable[[Progress], None]
    predict: Predict

    def run(self, cells: Sequence[CellKey], writer: ProfileWriter) -> None:
        """Skips what the file has. A cell that fails is written as failed, and the sweep goes on.

        Raises OSError when the file cannot be written.
        """
        todo = groups(cells, writer.finished)
        total, done, begun = sum(len(group.cells) for group in todo), 0, time.monotonic()
        for group in todo:
            measure = self._measure(group)
            for key in group.cells:
                spent = time.monotonic() - begun
                left = spent / done * (total - done) if done else None
                self.tell(Progress(key, done, total, left))
                try:
                    cell = measure(key)
                except MagicdecError as error:
                    cell = failed_cell(key, " ".join(str(error).split())[:1000])
                writer.append(cell)
                done += 1
                left = (time.monotonic() - begun) / done * (total - done)
                self.tell(Progress(key, done, total, left, cell))

    def _measure(self, group: Group) -> Callable[[CellKey], Cell]:
        """Measures cells of a group. Its rows are made with the first cell that needs them."""
        made: list[Bench] = []

        def measure(key: CellKey) -> Cell:
            if not made:
                rows = self.make_rows(group.batch, group.context)
                passes = Passes(self.session, rows, group.batch)
                made.append(Bench(passes, self.listen, self.predict))
            return made[0].measure(key, self._config(key), self.repeats)

        return measure

    def _config(self, key: CellKey) -> DecodeConfig:
        """Raises ConfigError for settings that contradict each other."""
        sampling = self.base.sampling
        if key.temperature != sampling.temperature:
            sampling = (
                SamplingConfig()
                if key.temperature == 0
                else replace(sampling, temperature=key.temperature)
            )
        weights = cast(DraftWeights, key.draft_weights)  # DecodeConfig checks it
        return replace(
            self.base, gamma=key.gamma, budget=key.budget, selector=key.selector,
            selector_options=dict(key.selector_options), draft_weights=weights, sampling=sampling,
        )  # fmt: skip
