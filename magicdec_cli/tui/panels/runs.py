"""Panel 5: all runs in a table, sortable, compared with the pinned one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rich.text import Text
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import DataTable

from magicdec.cli.output.console import Symbols
from magicdec.cli.run.trees import tree_text
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.panels.base import Framed
from magicdec.cli.tui.panels.speedup import lossless_mark, short_acceptance
from magicdec.cli.tui.view import RunView, View
from magicdec.engine.draft_spec import LOOKUP
from magicdec.engine.gamma.policy import FIXED

Sort = Callable[[RunView], Any]
MISSING = float("-inf")
DOUBT = "?"  # behind a figure that was measured while the machine had other work


class RunsPanel(Framed):
    DEFAULT_CSS = """
    RunsPanel > DataTable {
        height: 1fr; background: transparent; scrollbar-size: 1 1;
        & > .datatable--header { background: transparent; text-style: bold; }
        & > .datatable--cursor { text-style: reverse; background: transparent; }
        & > .datatable--hover, & > .datatable--header-hover { background: transparent; }
    }
    """

    key, title = "5", "runs"
    terms = (
        "B", "context", "drafter", "tree", "cascade", "budget", "γ", "γ auto, schedule",
        "γ adaptive", "T", "acceptance rate", "mean length", "tokens/s",
        "speedup, decode", "disturbed", "predicted", "lossless", "pinned", "vs pinned",
    )  # fmt: skip
    about = (
        "Every run of yours; settings that the tuner ran are counted above, and are in exports and "
        "the log's file. Enter or a click shows a run in the other panels, c pins the "
        "one that is shown; a click on a heading, or s, sorts. ? stands behind the figures of a "
        "disturbed measurement."
    )

    class Chosen(Message):
        """The panels shall show this run."""

        def __init__(self, run: int) -> None:
            super().__init__()
            self.run = run

    def __init__(self, gamma: str = "γ") -> None:
        super().__init__()
        self._gamma = gamma
        self._sort = "run"
        self._down = False
        self._cells: dict[int, tuple[str, ...]] = {}
        self._order: list[int] = []
        self._view: View | None = None
        self._sorting = ""  # as the title says it
        self._tuned = 0

    @property
    def columns(self) -> dict[str, Sort]:
        return {
            "run": lambda r: r.number,
            "B": lambda r: r.settings.batch,
            "context": lambda r: r.info.context if r.info else r.settings.context or 0,
            "drafter": lambda r: drafter(r.settings),
            "budget": lambda r: r.settings.budget,
            self._gamma: lambda r: (r.settings.gamma_policy != FIXED.name, r.settings.gamma),
            "acc": lambda r: _or(r.drafting and r.drafting.acceptance_rate),
            "tok/s": lambda r: _or(r.tokens_per_s),
            "speedup": lambda r: _or(r.measured and r.measured.speedup),
            "pred": lambda r: _or(r.predicted and r.predicted.speedup),
            "vs pin": lambda r: _or(r.tokens_per_s),
            "lossless": lambda r: r.status,
            "length": lambda r: _or(r.drafting and r.drafting.mean_acceptance_length),
            "T": lambda r: r.settings.temperature,
        }

    def compose(self) -> ComposeResult:
        yield DataTable(cursor_type="row", zebra_stripes=False, cell_padding=0)

    def on_mount(self) -> None:
        super().on_mount()
        for name in self.columns:
            self.table.add_column(Text(f" {name}", justify=_side(name)), key=name)

    @property
    def table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def show(self, view: View) -> None:
        self._view = view
        if view.tuned != self._tuned:
            self._tuned = view.tuned
            self._entitle()
        runs = sorted(view.runs, key=self.columns[self._sort], reverse=self._down)
        order = [run.number for run in runs]
        if order == self._order:
            self._update(runs, view)
        else:
            self._rebuild(runs, view)
        self._order = order

    def sort(self, column: str | None = None) -> None:
        """By this column, the other way round if it is already; None: by the next column."""
        names = list(self.columns)
        if column is None:
            column = names[(names.index(self._sort) + 1) % len(names)]
            self._down = column not in ("run", "drafter")
        else:
            self._down = not self._down if column == self._sort else column != "run"
        self._sort = column
        mark = self.look.down if self._down else self.look.up
        self._sorting = f"by {column} {mark}" if column != "run" or self._down else ""
        self._entitle()
        if self._view is not None:
            self.show(self._view)

    def _entitle(self) -> None:
        tuned = f"+ {self._tuned} of the tuner" if self._tuned else ""
        self.retitle(f"{tuned} {self._sorting}".strip())

    def _rebuild(self, runs: list[RunView], view: View) -> None:
        table = self.table
        at = self._order[table.cursor_row] if self._order and table.cursor_row >= 0 else None
        follow = at is None or at == max(self._order, default=0)
        table.clear()
        self._cells.clear()
        for run in runs:
            cells = self._row(run, view)
            table.add_row(*cells, key=str(run.number))
            self._cells[run.number] = _keys(cells)
        numbers = [run.number for run in runs]
        wanted = max(numbers, default=0) if follow else at
        if wanted in numbers:
            table.move_cursor(row=numbers.index(wanted), animate=False)

    def _update(self, runs: list[RunView], view: View) -> None:
        for run in runs:
            cells = self._row(run, view)
            keys = _keys(cells)
            for name, cell, key, old in zip(
                self.columns, cells, keys, self._cells[run.number], strict=True
            ):
                if key != old:
                    self.table.update_cell(str(run.number), name, cell, update_width=True)
            self._cells[run.number] = keys

    def _row(self, run: RunView, view: View) -> list[Text]:
        settings, look = run.settings, self.look
        pinned = next((r for r in view.runs if r.number == view.pinned), None)
        mark = " "
        if run.number == view.pinned:
            mark = "*"
        elif view.shown is not None and run.number == view.shown.number:
            mark = ">" if look.rule == "-" else "▸"
        context = run.info.context if run.info else settings.context
        length = run.drafting.mean_acceptance_length if run.drafting else None
        doubt = DOUBT if run.disturbed else ""
        values = {
            "run": f"{mark}{run.number}",
            "B": str(settings.batch),
            "context": f"{context:,}" if context else "all",
            "drafter": drafter(settings),
            "budget": "-" if settings.draft == LOOKUP else f"{settings.budget:,}",
            self._gamma: _drafted(settings),
            "acc": short_acceptance(run),
            "tok/s": f"{run.tokens_per_s:,.1f}{doubt}" if run.tokens_per_s else "-",
            "speedup": f"{run.measured.speedup:.2f}{look.times}{doubt}" if run.measured else "-",
            "pred": f"{run.predicted.speedup:.2f}{look.times}" if run.predicted else "-",
            "vs pin": _versus(run, pinned),
            "lossless": _ending(run, look),
            "length": f"{length:.2f}" if length else "-",
            "T": f"{settings.temperature:g}",
        }
        return [Text(f" {values[n]}", justify=_side(n)) for n in self.columns]

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        event.stop()
        self.sort(str(event.column_key.value))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(int(str(event.row_key.value))))


def drafter(settings: Settings) -> str:
    """Who drafts, or over which selection the model does so itself, and the tree."""
    who = settings.who
    name = settings.selector.rpartition(":")[2] if who.kind == "self" else who.short
    return f"{name} {tree_text(settings)}".strip()


def _drafted(settings: Settings) -> str:
    """γ, or what chooses it."""
    fixed = settings.gamma_policy == FIXED.name
    return str(settings.gamma) if fixed else settings.gamma_policy


def _keys(cells: list[Text]) -> tuple[str, ...]:
    return tuple(cell.plain for cell in cells)


def _or(value: float | None) -> float:
    return MISSING if value is None else value


def _versus(run: RunView, pinned: RunView | None) -> str:
    if pinned is None or not (run.tokens_per_s and pinned.tokens_per_s):
        return "-"
    if run.number == pinned.number:
        return "pinned"
    return f"{run.tokens_per_s / pinned.tokens_per_s - 1:+.1%}"


def _side(column: str) -> Literal["left", "right"]:
    return "left" if column in ("drafter", "lossless") else "right"


def _ending(run: RunView, look: Symbols) -> str:
    if run.status in ("stopped", "failed"):
        return run.status
    return lossless_mark(run, look).plain
