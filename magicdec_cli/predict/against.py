"""`magicdec predict --against FILE`: predictions beside measurements, or constants from them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.cli.output.console import TERMINAL, Symbols, symbols
from magicdec.cli.output.files import written
from magicdec.cli.output.tables import Cell, Format, print_json, print_listing
from magicdec.engine.errors import require

if TYPE_CHECKING:
    from magicdec.cli.output.columns import Column, Row
    from magicdec.profiles.costs.measured_table import Compared, Summary
    from magicdec.profiles.costs.table_file import Given, Measured

FORMATS: tuple[str, ...] = ("table", "md", "csv", "json", "jsonl")
SCHEMA = "magicdec.against/1"
MOST_TABLE_ROWS = 2000


def against(
    path: Path, *, format: str, fit: bool, output: Path | None, budget: Given | None = None
) -> int | None:
    """Compares the cost model with the experiments in `path`, a CSV file (profiles.costs.table_file
    says which columns), and prints both, with the errors.

    With `fit`, prints instead the TOML of the file's hardware with constants fitted to it; what
    those reach goes to stderr. `output` is the file to write; a table goes there as Markdown.
    `budget` is that of rows that have no draft_budget; what is assumed of them goes to stderr.
    Raises ConfigError.
    """
    from magicdec.profiles.costs.hardware import write_hardware
    from magicdec.profiles.costs.measured_table import compare, refit, summaries, with_hardware
    from magicdec.profiles.costs.table_file import read_table

    require(format in FORMATS, f"no format {format!r}; choose from {', '.join(FORMATS)}")
    rows = read_table(path, budget)
    require(
        fit or format not in ("table", "md") or len(rows) <= MOST_TABLE_ROWS,
        f"{path.name} has {len(rows):,} rows, too many for a table; add --format csv",
    )
    for note in _assumed(rows):
        TERMINAL.note(note)
    if not fit:
        compared = compare(rows)
        with _written(output):
            _print(compared, summaries(compared), "md" if output and format == "table" else format)
        return None
    entries = refit(rows, path.name)
    with _written(output):
        print(write_hardware(entries), end="")
    for summary in summaries(compare(with_hardware(rows, entries))):
        TERMINAL.note(_sentence(summary))
    return None


def _assumed(rows: Sequence[Measured]) -> Iterator[str]:
    """What was taken for the draft budget of rows that do not say, and for selectors that nobody
    here knows."""
    from magicdec.profiles.costs.table_file import BUDGET

    for own, taken in ((True, f"{BUDGET} entries"), (False, "its full cache")):
        lines = [r.line for r in rows if r.assumed and (r.drafting.model is None) == own]
        if lines:
            which = f"line {lines[0]}" + (f" and {len(lines) - 1} more" if lines[1:] else "")
            yield (
                f"assumed: {which} {'have' if lines[1:] else 'has'} no draft_budget, so of "
                f"{'a self-draft' if own else 'the draft model'} {taken}; --budget N says another"
            )
    for name in dict.fromkeys(row.unknown for row in rows if row.unknown):
        lines = [row.line for row in rows if row.unknown == name]
        which = f"line {lines[0]}" + (f" and {len(lines) - 1} more" if lines[1:] else "")
        yield (
            f"assumed: selector {name!r} of {which} is none that `magicdec selectors` lists, so it "
            "is priced as one that chooses once per row, in no time"
        )


@contextlib.contextmanager
def _written(output: Path | None) -> Iterator[None]:
    """What is printed inside goes to `output`, if there is one."""
    if output is None:
        yield
        return
    with written(output) as file, contextlib.redirect_stdout(file):
        yield


def _print(compared: Sequence[Compared], found: Sequence[Summary], format: str) -> None:
    rows = [_record(c) for c in compared]
    from magicdec.profiles.costs.measured_table import NEITHER

    if format == "json":
        print_json({"schema": SCHEMA, "rows": rows, "summary": [asdict(s) for s in found]})
    elif format == "jsonl":
        for row in rows:
            print(json.dumps({"schema": SCHEMA, **row}))
        for summary in found:
            print(json.dumps({"schema": SCHEMA, "summary": asdict(summary)}))
    elif format == "csv":
        print_listing(list(rows[0]), [list(row.values()) for row in rows], "csv")
        for summary in found:
            TERMINAL.note(_sentence(summary))
    else:
        chosen: Format = "md" if format == "md" else "table"
        _print_pairs(rows, format)
        print()
        print_listing(*_errors(found), chosen)
        low, high = NEITHER
        print(f"\n* of rows whose measured speedup is not within {low:g}..{high:g}")


def _record(c: Compared) -> dict[str, Cell]:
    """Everything about one row; times in milliseconds, of one draft step."""
    m = c.measured
    return {
        "line": m.line, "table": m.table, "target": m.target.name, "draft": _draft(c),
        "draft_budget": m.drafting.budget, "budget_assumed": m.assumed,
        "selector_unknown": m.unknown or None,
        "hardware": m.hardware.label, "context": m.context,
        "batch": m.batch, "gamma": m.gamma, "tokens_per_step": m.omega,
        "draft_ms": m.draft_ms, "draft_ms_predicted": c.times.draft * 1e3,
        "verify_ms": m.verify_ms, "verify_ms_predicted": c.times.verify * 1e3,
        "ar_ms": m.plain_ms, "ar_ms_predicted": c.times.plain * 1e3,
        "speedup": m.speedup, "speedup_predicted": c.speedup, "error": c.error,
        "same_side": c.same_side,
    }  # fmt: skip


def _draft(c: Compared) -> str:
    return c.measured.drafting.model.name if c.measured.drafting.model else "self"


def _columns() -> list[Column]:
    """In the order of the table; pairs are predicted / measured."""
    from magicdec.cli.output.columns import Column

    def text(title: str, rank: int, name: str) -> Column:
        return Column(title, rank, lambda row, look: str(row[name]), left=True)

    def count(title: str, rank: int, name: str) -> Column:
        return Column(title, rank, lambda row, look: f"{row[name]:,}")

    def pair(title: str, rank: int, name: str) -> Column:
        return Column(title, rank, lambda row, look: _pair(row[f"{name}_predicted"], row[name]))

    return [
        text("table", 2, "table"), text("target", 0, "target"), text("draft", 1, "draft"),
        text("hardware", 1, "hardware"), count("S", 0, "context"), count("B", 0, "batch"),
        count("γ", 0, "gamma"), pair("T_D ms", 3, "draft_ms"), pair("T_V ms", 3, "verify_ms"),
        pair("T_T ms", 3, "ar_ms"), pair("speedup", 0, "speedup"),
        Column("error", 0, lambda row, look: f"{row['error']:+.1%}"),
    ]  # fmt: skip


def _print_pairs(rows: Sequence[Row], format: str) -> None:
    from magicdec.cli.output.columns import render, text_rows

    if format == "md":
        shown = _columns()
        print_listing([c.title for c in shown], list(text_rows(rows, shown, Symbols())), "md")
        return
    look = symbols(TERMINAL.out)
    table, left_out = render(rows, _columns(), TERMINAL.out.width, look)
    TERMINAL.out.print(table)
    without = f"; no room for {', '.join(left_out)}: --format csv has all" if left_out else ""
    TERMINAL.out.print(f"pairs are predicted / measured{without}", highlight=False)


def _errors(found: Sequence[Summary]) -> tuple[list[str], list[list[Cell]]]:
    columns = ["speedups of", "rows", "mean |error|", "median", "p90", "bias", "right side of 1*"]
    return columns, [
        [s.name, s.rows, f"{s.mean:.1%}", f"{s.median:.1%}", f"{s.p90:.1%}", f"{s.bias:+.1%}",
         f"{s.same_side} of {s.judged}"]
        for s in found
    ]  # fmt: skip


def _sentence(s: Summary) -> str:
    return (
        f"{s.name}: {s.rows} rows, speedup error mean {s.mean:.1%}, median {s.median:.1%}, "
        f"p90 {s.p90:.1%}, bias {s.bias:+.1%}; right side of 1 in {s.same_side} of {s.judged}"
    )


def _pair(predicted: float, measured: float | None) -> str:
    return f"{predicted:.2f} / " + ("-" if measured is None else f"{measured:.2f}")
