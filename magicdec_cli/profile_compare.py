"""`magicdec profile compare`: a line per figure of each cell, and an exit code for CI."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from magicdec.cli.console import TERMINAL, Symbols, symbols
from magicdec.cli.tables import Cell as TableCell
from magicdec.cli.tables import Format, print_json, print_listing
from magicdec.engine.errors import ConfigError
from magicdec.profiles.comparing import FIGURES, LEVEL, Change, Comparison, Pair, compare
from magicdec.profiles.storage.encoding import key_to_json
from magicdec.profiles.storage.reading import read_profile

MOST_LISTED = 10
STYLES = {"faster": "green", "slower": "bold red"}


def run_compare(
    a: str, b: str, format: Format, threshold: str | None, figures: Sequence[str]
) -> int | None:
    """1 when something got worse beyond the threshold, else nothing."""
    limit = None if threshold is None else parse_share(threshold)
    profiles = [read_profile(path) for path in (a, b)]
    for path, profile in zip((a, b), profiles, strict=True):
        for warning in profile.warnings:
            TERMINAL.note(f"warning: {path}: {warning}")
    found = compare(*profiles)
    if not found.pairs and not (found.only_a or found.only_b):
        raise ConfigError("neither profile has a cell yet")
    for difference in found.differences:
        TERMINAL.note(f"warning: the profiles differ in {difference}")
    regressions = found.regressions(limit, figures) if limit is not None else []
    if format == "json":
        print_json(_document(found, limit, regressions))
    elif format == "table":
        if found.pairs:
            _print_table(found)
        else:
            TERMINAL.note("no cell is in both profiles")
    else:
        _print_rows(found, format)
    _note_missing(found)
    for line in regressions[:MOST_LISTED]:
        TERMINAL.note(f"regression: {line}")
    if len(regressions) > MOST_LISTED:
        TERMINAL.note(
            f"and {len(regressions) - MOST_LISTED:,} more regressions; --format json has all"
        )
    if limit is not None and not regressions:
        TERMINAL.note(f"no significant regression beyond {limit:.3g} of A")
    return 1 if regressions else None


def parse_share(text: str) -> float:
    """`5%` or `0.05`. Raises ConfigError."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ConfigError(f"--threshold must be like 5% or 0.05, below 100%, got {text!r:.40}")
    return share


def _print_table(found: Comparison) -> None:
    look = symbols(TERMINAL.out)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("B", "context"):
        table.add_column(name, justify="right")
    table.add_column("drafter", overflow="fold")
    table.add_column(look.gamma, justify="right")
    table.add_column("figure")
    for name in ("A", "B", "B/A", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    for pair in found.pairs:
        key = pair.key
        names = (str(key.batch), f"{key.context:,}", key.way, str(key.gamma))
        for index, change in enumerate(pair.changes):
            shown = names if index == 0 else ("",) * 4
            table.add_row(*shown, *_cells(change, look))
        if pair.broken is not None:
            table.add_row("", "", "", "", Text(pair.broken, "bold red"))
    TERMINAL.out.print(table)
    overall = [(figure, found.overall(figure)) for figure in FIGURES]
    means = [f"{_name(figure)} {mean:.3f}" for figure, mean in overall if mean is not None]
    if means:
        TERMINAL.out.print(Text(f"B/A over all cells (geometric mean): {', '.join(means)}"))
    TERMINAL.out.print(
        Text(
            f"p: Welch's t-test on the repeats, adjusted for the number of cells; "
            f"significant below {LEVEL}", "dim",
        )
    )  # fmt: skip


def _cells(change: Change, look: Symbols) -> list[Text]:
    def number(value: float | None, decimals: int) -> str:
        return "-" if value is None else f"{value:,.{decimals}f}"

    decimals = 1 if change.figure == "tokens_per_s" else 2
    style = STYLES.get(change.verdict, "dim")
    mark = {"faster": f"{look.up} ", "slower": f"{look.down} "}.get(change.verdict, "")
    said: str = change.verdict
    if said == "not testable":
        said += ": one repeat" if min(change.repeats) < 2 else ": no spread"
    return [
        Text(_name(change.figure)),
        Text(number(change.a, decimals)),
        Text(number(change.b, decimals)),
        Text(number(change.ratio, 3), style),
        Text("-" if change.p is None else f"{change.p:.3f}"),
        Text(mark + said, style),
    ]


def _name(figure: str) -> str:
    return figure.replace("_per_", "/")


def _print_rows(found: Comparison, format: Format) -> None:
    columns = ["batch", "context", "drafter", "gamma", "figure", "a", "b", "ratio", "p",
               "repeats_a", "repeats_b", "verdict", "broken"]  # fmt: skip
    rows: list[list[TableCell]] = [
        [
            pair.key.batch, pair.key.context, pair.key.drafter.label, pair.key.gamma,
            change.figure, change.a, change.b, change.ratio, change.p, *change.repeats,
            change.verdict, pair.broken,
        ]
        for pair in found.pairs
        for change in pair.changes
    ]  # fmt: skip
    print_listing(columns, rows, format)


def _document(
    found: Comparison, limit: float | None, regressions: Sequence[str]
) -> dict[str, object]:
    return {
        "schema": "magicdec.compare/1",
        "level": LEVEL,
        "threshold": limit,
        "differences": list(found.differences),
        "overall": {figure: found.overall(figure) for figure in FIGURES},
        "cells": [_pair(pair) for pair in found.pairs],
        "only_a": [key_to_json(key) for key in found.only_a],
        "only_b": [key_to_json(key) for key in found.only_b],
        "regressions": list(regressions),
    }


def _pair(pair: Pair) -> dict[str, object]:
    changes = {
        change.figure: {
            "a": change.a, "b": change.b, "ratio": change.ratio, "p": change.p,
            "repeats": list(change.repeats), "verdict": change.verdict,
        }
        for change in pair.changes
    }  # fmt: skip
    return {"key": key_to_json(pair.key), "broken": pair.broken, **changes}


def _note_missing(found: Comparison) -> None:
    for name, keys in (("A", found.only_a), ("B", found.only_b)):
        for key in keys[:MOST_LISTED]:
            TERMINAL.note(f"only in {name}: {key.label}")
        if len(keys) > MOST_LISTED:
            TERMINAL.note(f"only in {name}: {len(keys) - MOST_LISTED} more")
