"""A grid of real steps that no calibration has seen, beside what it predicts for them."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafters.base import draft_weights
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.session import Session
from magicdec.engine.text.documents import Document
from magicdec.engine.untrusted import clean, read_bounded
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.calibration.steps import STAGGER, StepBench, StepSample, Visit, document_ids
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.machine.expected_time import Pace
from magicdec.profiles.recorded.writer import cut_torn_line

MAX_BYTES = 16 * 2**20
BEGINNING = '{"rows": '  # of every line


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: medians of its steps, milliseconds, and what is predicted for them.

    Both speedups are with the run's own tokens per step. Selection, once a row, is in neither.
    """

    rows: int
    context: int
    budget: int
    gamma: int
    tokens_per_step: float
    plain_per_step: float  # median of plain ÷ speculative step, each beside the other
    plain_ms: float
    draft_ms: float  # of one draft step
    verify_ms: float
    step_ms: float
    plain_ms_predicted: float
    draft_ms_predicted: float
    verify_ms_predicted: float
    step_ms_predicted: float
    calibrated: str  # when
    document: str = ""  # the beginning of its SHA-256; files of earlier versions have none

    @property
    def place(self) -> tuple[int, int, int, int]:
        return self.context, self.budget, self.rows, self.gamma

    @property
    def measured(self) -> float:
        return self.tokens_per_step * self.plain_per_step

    @property
    def predicted(self) -> float:
        return self.plain_ms_predicted * self.tokens_per_step / self.step_ms_predicted

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def read_cells(path: Path) -> list[Cell]:
    """Cells of an earlier check, none when there is no file; one that was measured again as it was
    measured last. A torn last line is left out. Raises ConfigError."""
    if not path.exists():
        return []
    lines = read_bounded(path, MAX_BYTES).decode(errors="replace").rstrip().splitlines()
    cells: dict[tuple[int, int, int, int], Cell] = {}
    for number, line in enumerate(lines, start=1):
        try:
            cell = _cell(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and _is_torn(line):
                break
            raise ConfigError(
                f"{path}, line {number} is no cell of a check ({clean(str(error))}); delete that "
                "line, or give another file"
            ) from None
        cells[cell.place] = cell
    return list(cells.values())


def require_same(path: Path, cells: Iterable[Cell], calibrated: str, document: str) -> None:
    """Raises ConfigError for cells of another calibration, and so perhaps of another model or
    machine, or of another text."""
    for cell in cells:
        require(
            cell.calibrated == calibrated,
            f"{path} checks the calibration of {clean(cell.calibrated)}, and now there is that of "
            f"{calibrated}; give another file",
        )
        require(
            cell.document in ("", document),
            f"{path} was measured on another text; give another file",
        )


def append_cells(path: Path, cells: Sequence[Cell]) -> None:
    """After what is whole in the file. Raises OSError."""
    if path.exists():
        cut_torn_line(path)
    with path.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(cell)) + "\n" for cell in cells)


def _cell(line: str) -> Cell:
    """Raises ValueError for anything else."""
    data, names = json.loads(line), {each.name for each in fields(Cell)}
    if not isinstance(data, dict) or set(data) | {"document"} != names:
        raise ValueError("it has other members than a cell")
    numbers = [data[name] for name in names - {"calibrated", "document"}]
    if not all(isinstance(number, int | float) and number > 0 for number in numbers):
        raise ValueError("its figures must be numbers above 0")
    return Cell(**data)


def _is_torn(line: str) -> bool:
    """A write that did not complete, not somebody's letter."""
    try:
        json.loads(line)
    except ValueError:
        return line.startswith(BEGINNING) or BEGINNING.startswith(line)
    return False


BATCHES, CONTEXTS, BUDGETS, GAMMAS = (1, 4, 8), (1000, 4000, 7000), (128, 512), (1, 2, 3, 4, 5)
ROUNDS, SELECTOR = 8, "streaming"  # 8 steps of each γ give each row 100 new tokens and more


class Check:
    """Every speculative step stands between two plain ones of the same rows."""

    def __init__(
        self, session: Session, document: Document, calibration: Calibration, digest: str
    ) -> None:
        self._session, self._calibration, self._digest = session, calibration, digest
        weights = draft_weights(DecodeConfig(), session.device, session.dtype)
        self._steps = tuple((gamma, weights) for gamma in GAMMAS)
        length = max(CONTEXTS) + STAGGER * (max(BATCHES) - 1)
        ids = document_ids(session, document, length)
        self._bench = StepBench(
            session, ids, batch=max(BATCHES), context=max(CONTEXTS),
            growth=self._visit(max(CONTEXTS), max(BUDGETS)).growth,
        )  # fmt: skip

    def prefill(self) -> Iterator[float]:
        """Yields the done share."""
        return self._bench.prefill()

    def run(self, known: Sequence[Cell], path: Path) -> Iterator[Cell]:
        """Measures contexts and budgets of which not every cell is `known`; appends to `path`.

        Raises OSError where that cannot be written, once it has yielded what was measured."""
        for context, budget in self._places(known):
            found = list(self._cells(self._visit(context, budget)))
            try:
                append_cells(path, found)
            except OSError:
                yield from found
                raise
            yield from found

    def left(self, known: Sequence[Cell]) -> int:
        """How many cells `run` measures."""
        return len(self._places(known)) * len(BATCHES) * len(GAMMAS)

    def seconds(self, known: Sequence[Cell]) -> float:
        """About what that takes."""
        found = self._calibration
        marks = {"dtype": found.fingerprint["dtype"], "kv_dtype": found.fingerprint["kv_dtype"]}
        pace, steps = Pace.of(found, found.model, marks), 2 * ROUNDS * len(GAMMAS)
        visits = (
            pace.decode(rows, context, steps)
            for context, _ in self._places(known) for rows in BATCHES
        )  # fmt: skip
        return pace.prefill(max(CONTEXTS)) + sum(visits)

    def _places(self, known: Sequence[Cell]) -> list[tuple[int, int]]:
        """Contexts and budgets of which not every cell is `known`, the longest first."""
        there = {cell.place for cell in known}
        return [
            (context, budget)
            for context in sorted(CONTEXTS, reverse=True) for budget in BUDGETS
            if not {(context, budget, b, gamma) for b in BATCHES for gamma in GAMMAS} <= there
        ]  # fmt: skip

    def _visit(self, context: int, budget: int) -> Visit:
        return Visit(context, SELECTOR, budget, BATCHES, self._steps, ROUNDS)

    def _cells(self, visit: Visit) -> Iterator[Cell]:
        cells: dict[tuple[int, int], list[StepSample]] = defaultdict(list)
        for sample in self._bench.visit(visit):
            if isinstance(sample, StepSample) and sample.gamma:
                cells[sample.rows, sample.gamma].append(sample)
        for (rows, gamma), own in sorted(cells.items()):
            yield self._cell(visit, rows, gamma, own)

    def _cell(self, visit: Visit, rows: int, gamma: int, own: Sequence[StepSample]) -> Cell:
        weights = own[0].weights
        costs = step_costs(
            self._calibration.model, self._calibration.hardware,
            Drafting(
                budget=round(statistics.mean(s.entries + (gamma - 1) / 2 for s in own)),
                weights=weights, weight_bytes=1.0 if weights == "int8" else None,
            ),
            rows=rows, context=statistics.mean(s.context for s in own), gamma=gamma,
            weight_bytes=self._calibration.weight_bytes, kv_bytes=self._calibration.kv_bytes,
        )  # fmt: skip
        ratio = statistics.median(s.times.plain / s.step_s for s in own)
        return Cell(
            rows, visit.context, visit.budget, gamma,
            tokens_per_step=1 + statistics.mean(a for s in own for a in s.accepted),
            plain_per_step=ratio,
            plain_ms=1e3 * statistics.median(s.times.plain for s in own),
            draft_ms=1e3 * statistics.median(s.times.draft for s in own),
            verify_ms=1e3 * statistics.median(s.times.verify for s in own),
            step_ms=1e3 * statistics.median(s.step_s for s in own),
            plain_ms_predicted=1e3 * float(costs.plain),
            draft_ms_predicted=1e3 * float(costs.draft),
            verify_ms_predicted=1e3 * float(costs.verify),
            step_ms_predicted=1e3 * float(costs.step(gamma)),
            calibrated=self._calibration.created,
            document=self._digest,
        )  # fmt: skip
