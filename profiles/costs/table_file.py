"""Measured speedups as a CSV file, one experiment a row, in the columns of MagicDec's tables."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from magicdec.engine.errors import ConfigError, MagicdecError
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import Search
from magicdec.engine.untrusted import clean, read_bounded
from magicdec.profiles.costs.catalog import find_hardware, find_model
from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.speculation import Drafting
from magicdec.profiles.files.files import csv_rows

REQUIRED = ("target", "gpu", "context", "batch", "gamma", "tokens_per_step", "speedup")
FULL = ("full", "none", "all", "-")  # draft budgets that mean the whole cache
BUDGET = 512  # entries, of a self-draft whose budget nobody says
KV_BYTES = 2  # of an element: what published experiments keep
LARGEST = 1e12
MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Measured:
    """One experiment. Times are milliseconds, None where the file has none."""

    line: int
    table: str
    target: ModelShape
    drafting: Drafting
    gpu: str  # the device as the file names it
    hardware: Hardware
    context: int
    batch: int
    gamma: int
    omega: float
    speedup: float
    draft_ms: float | None  # T_D, one draft step
    verify_ms: float | None  # T_V
    plain_ms: float | None  # T_T
    step_ms: float | None  # a whole speculative step
    assumed: bool = False  # the draft budget is this module's guess: neither file nor user says it
    unknown: str = ""  # a selector of which nobody knows what it reads: priced as if nothing


@dataclass(frozen=True, slots=True)
class Given:
    """What the user says of rows without a draft_budget: so many entries, or None for all."""

    budget: int | None


def read_table(path: Path, given: Given | None = None) -> list[Measured]:
    """Rows of `path`. Raises ConfigError with the line of the first cell that cannot be used.

    Columns: target, gpu, context, batch, gamma, tokens_per_step (Ω), speedup; and, if they are
    there, table, draft (a model, or "self"), selector, draft_budget (or "full"), num_gpus,
    draft_ms_total (γ·T_D), verify_ms, ar_ms (T_T), sd_ms (a speculative step ÷ Ω).

    Without a draft_budget `given` counts, unless the selector is "full". Without that, BUDGET is
    assumed of a self-draft, and of a draft model its full cache. A selector that is not installed
    here is priced as one that chooses once per row, in no time.
    """
    data = read_bounded(path, MOST_BYTES)
    find = functools.cache(find_model), functools.cache(find_hardware)  # each reads all data files
    try:
        columns, lines = csv_rows(data.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a CSV file: {error}") from error
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ConfigError(
            f"{path}: no column {', '.join(missing)}; needed are {', '.join(REQUIRED)}"
        )
    rows = [_row(_Cells(path, line, cells, *find), given) for line, cells in lines]
    if not rows:
        raise ConfigError(f"{path}: has no rows; give measured experiments")
    return rows


def _row(cells: _Cells, given: Given | None) -> Measured:
    gamma = cells.whole("gamma")
    omega = cells.number("tokens_per_step")
    if not 1 <= omega <= gamma + 1:
        raise cells.bad("tokens_per_step", f"from 1 to gamma + 1 = {gamma + 1}")
    drafted, verify, plain, per_token = (
        cells.optional(name) for name in ("draft_ms_total", "verify_ms", "ar_ms", "sd_ms")
    )
    drafting, assumed, unknown = _drafting(cells, given)
    return Measured(
        line=cells.line,
        table=cells.text("table"),
        target=cells.model("target"),
        drafting=drafting,
        gpu=cells.text("gpu"),
        hardware=cells.hardware(),
        context=cells.whole("context"),
        batch=cells.whole("batch"),
        gamma=gamma,
        omega=omega,
        speedup=cells.number("speedup"),
        draft_ms=None if drafted is None else drafted / gamma,
        verify_ms=verify,
        plain_ms=plain,
        step_ms=None if per_token is None else per_token * omega,
        assumed=assumed,
        unknown=unknown,
    )


def _drafting(cells: _Cells, given: Given | None) -> tuple[Drafting, bool, str]:
    """And whether its budget is assumed, and its selector where that is not known."""
    draft = cells.text("draft")
    same = draft.casefold() in ("", "self", cells.text("target").casefold())
    written, selector = (cells.text(name).casefold() for name in ("draft_budget", "selector"))
    assumed = False
    if written:
        budget = None if written in FULL else cells.whole("draft_budget")
    elif selector in FULL:
        budget = None
    elif given is not None:
        budget = given.budget
    else:
        budget, assumed = BUDGET if same else None, True
    model = None if same else cells.model("draft")
    known = not selector or selector in FULL or selector in _selectors()
    search = Search()
    if known and selector and budget is not None:
        shape = model or cells.model("target")
        search = SELECTORS.create(selector).search(shape.head_dim, KV_BYTES)
    made = Drafting(
        budget, model=model, select_per_token=search.per_draft, verify_per_token=search.per_verify
    )
    return made, assumed, "" if known else cells.text("selector")


@functools.cache
def _selectors() -> frozenset[str]:
    """By name; no class that a table names is imported."""
    return frozenset(SELECTORS.names())


@dataclass(frozen=True, slots=True)
class _Cells:
    """One line's cells by column."""

    path: Path
    line: int
    cells: Mapping[str, str]
    find_model: Callable[[str], ModelShape]
    find_hardware: Callable[[str], Hardware]

    def text(self, column: str) -> str:
        return clean(self.cells.get(column, "").strip())

    def number(self, column: str) -> float:
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.bad(column, "a number") from None
        if not (math.isfinite(value) and 0 < value <= LARGEST):
            raise self.bad(column, f"above 0, at most {LARGEST:g}")
        return value

    def whole(self, column: str) -> int:
        value = self.number(column)
        if value != int(value):
            raise self.bad(column, "a whole number")
        return int(value)

    def optional(self, column: str) -> float | None:
        return self.number(column) if self.text(column) else None

    def model(self, column: str) -> ModelShape:
        try:
            return self.find_model(self.text(column))
        except MagicdecError as error:
            raise self._error(f"{column}: {error}") from error

    def hardware(self) -> Hardware:
        count = self.whole("num_gpus") if self.text("num_gpus") else 1
        try:
            return self.find_hardware(f"{count}x{self.text('gpu')}")
        except MagicdecError as error:
            raise self._error(f"gpu: {error}") from error

    def bad(self, column: str, asked: str) -> ConfigError:
        return self._error(f"{column} must be {asked}, got {self.text(column)!r}")

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"{self.path}, line {self.line}: {message}")
