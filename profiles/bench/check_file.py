"""The file that `magicdec calibrate --check` appends its cells to, and goes on with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from magicdec.engine.bounded import read_bounded
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.harmless import clean
from magicdec.profiles.storage.torn import cut_torn_line

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
