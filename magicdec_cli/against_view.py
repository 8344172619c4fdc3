"""`magicdec predict --against FILE`: predictions beside measurements, or constants from them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.cli.console import TERMINAL
from magicdec.cli.tables import Cell, Format, print_json, print_listing
from magicdec.engine.errors import ConfigError, require

if TYPE_CHECKING:
    from magicdec.profiles.costs.against import Compared, Summary

FORMATS: tuple[str, ...] = ("table", "md", "csv", "json", "jsonl")
SCHEMA = "magicdec.against/1"


def against(path: Path, *, format: str, fit: bool, output: Path | None) -> int | None:
    """Compares the cost model with the experiments in `path`, a CSV file (profiles.costs.table_file
    says which columns), and prints both, with the errors.

    With `fit`, prints instead the TOML of the file's hardware with constants fitted to it; what
    those reach goes to stderr. `output` is the file to write; a table goes there as Markdown.
    Raises ConfigError.
    """
    from magicdec.profiles.costs.against import compare, refit, summaries, with_hardware
    from magicdec.profiles.costs.hardware_file import write_hardware
    from magicdec.profiles.costs.table_file import read_table

    require(format in FORMATS, f"no format {format!r}; choose from {', '.join(FORMATS)}")
    rows = read_table(path)
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


@contextlib.contextmanager
def _written(output: Path | None) -> Iterator[None]:
    """What is printed inside goes to `output`, if there is one."""
    if output is None:
        yield
        return
    try:
        with output.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            yield
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from error


def _print(compared: Sequence[Compared], found: Sequence[Summary], format: str) -> None:
    rows = [_record(c) for c in compared]
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
        print_listing(*_short(compared), chosen)
        print()
        print_listing(*_errors(found), chosen)


def _record(c: Compared) -> dict[str, Cell]:
    """Everything about one row; times in milliseconds, of one draft step."""
    m = c.measured
    return {
        "line": m.line, "table": m.table, "target": m.target.name, "draft": _draft(c),
        "draft_budget": m.drafting.budget, "hardware": m.hardware.label, "context": m.context,
        "batch": m.batch, "gamma": m.gamma, "tokens_per_step": m.omega,
        "draft_ms": m.draft_ms, "draft_ms_predicted": c.draft_ms,
        "verify_ms": m.verify_ms, "verify_ms_predicted": c.verify_ms,
        "ar_ms": m.plain_ms, "ar_ms_predicted": c.plain_ms,
        "speedup": m.speedup, "speedup_predicted": c.speedup, "error": c.error,
        "same_side": c.same_side,
    }  # fmt: skip


def _draft(c: Compared) -> str:
    return c.measured.drafting.model.name if c.measured.drafting.model else "self"


def _short(compared: Sequence[Compared]) -> tuple[list[str], list[list[Cell]]]:
    """What fits a terminal; pairs are predicted / measured."""
    columns = ["table", "target", "draft", "hardware", "S", "B", "gamma", "T_D ms", "T_V ms",
               "T_T ms", "speedup", "error"]  # fmt: skip
    lines: list[list[Cell]] = []
    for c in compared:
        m = c.measured
        lines.append([
            m.table, m.target.name, _draft(c), m.hardware.label, m.context, m.batch,
            m.gamma, _pair(c.draft_ms, m.draft_ms), _pair(c.verify_ms, m.verify_ms),
            _pair(c.plain_ms, m.plain_ms), _pair(c.speedup, m.speedup), f"{c.error:+.1%}",
        ])  # fmt: skip
    return columns, lines


def _errors(found: Sequence[Summary]) -> tuple[list[str], list[list[Cell]]]:
    columns = ["speedups of", "rows", "mean |error|", "median", "p90", "bias", "right side of 1"]
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
