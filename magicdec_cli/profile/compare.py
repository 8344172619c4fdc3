"""`magicdec profile compare`: a line per figure of each cell, and an exit code for CI."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from magicdec.cli.output.columns import Column, Row, render
from magicdec.cli.output.console import TERMINAL, Symbols, symbols
from magicdec.cli.output.numbers import key_gamma
from magicdec.cli.output.tables import Cell as TableCell
from magicdec.cli.output.tables import Format, print_json, print_listing
from magicdec.cli.profile.show import clipped
from magicdec.engine.errors import ConfigError
from magicdec.profiles.recorded.compare import FIGURES, LEVEL, Change, Comparison, Pair, compare
from magicdec.profiles.recorded.reader import read_profile

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
    if limit is not None:
        _note_untested(found, figures)
    if limit is not None and not regressions:
        TERMINAL.note(f"no significant regression beyond {limit * 100:.3g}% of A")
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
    rows: list[Row] = [
        {"pair": pair, "change": change, "first": index == 0}
        for pair in found.pairs
        for index, change in enumerate(pair.changes)
    ]
    table, left_out = render(rows, COLUMNS, TERMINAL.out.width, look)
    TERMINAL.out.print(table)
    for pair in found.pairs:
        if pair.broken is not None:
            TERMINAL.out.print(Text(f"{pair.key.label}: {pair.broken}", "bold red"))
    if left_out:
        TERMINAL.out.print(Text(f"no room for: {', '.join(left_out)}; --format csv has all", "dim"))
    overall = [(figure, found.overall(figure)) for figure in FIGURES]
    means = [f"{_name(figure)} {mean:.3f}" for figure, mean in overall if mean is not None]
    if means:
        TERMINAL.out.print(Text(f"B/A over all cells (geometric mean): {', '.join(means)}"))
    TERMINAL.out.print(
        Text(
            f"p: Welch's t-test on the repeats, adjusted for the number of cells; significant "
            f"below {LEVEL}. It knows the noise within a file, not that of another day: speedup, "
            "which has its own plain runs, bears that better than tokens/s", "dim",
        )
    )  # fmt: skip


def _of_cell(write: Callable[[Pair], str]) -> Callable[[Row, Symbols], str]:
    """Once for the figures of a cell."""
    return lambda row, look: write(row["pair"]) if row["first"] else ""


COLUMNS = (  # which cell it is, and what to think of it, come before how much it was
    Column("batch", 0, _of_cell(lambda pair: f"{pair.key.batch:,}")),
    Column("context", 0, _of_cell(lambda pair: f"{pair.key.context:,}")),
    Column("drafter", 1, _of_cell(lambda pair: clipped(pair.key.way)), left=True),
    Column("γ", 1, _of_cell(lambda pair: key_gamma(pair.key))),
    Column("figure", 0, lambda row, look: _name(row["change"].figure), left=True),
    Column("A", 4, lambda row, look: _value(row["change"], row["change"].a)),
    Column("B", 4, lambda row, look: _value(row["change"], row["change"].b)),
    Column("B/A", 0, lambda row, look: _styled(row["change"], _number(row["change"].ratio, 3))),
    Column("p", 3, lambda row, look: _number(row["change"].p, 3)),
    Column("verdict", 1, lambda row, look: _verdict(row["change"], look), left=True),
)


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def _value(change: Change, value: float | None) -> str:
    return _number(value, 1 if change.figure == "tokens_per_s" else 2)


def _styled(change: Change, text: str) -> Text:
    return Text(text, STYLES.get(change.verdict, "dim"))


def _verdict(change: Change, look: Symbols) -> Text:
    mark = {"faster": f"{look.up} ", "slower": f"{look.down} "}.get(change.verdict, "")
    said: str = change.verdict
    if said == "not testable":
        said = "untested, " + ("one repeat" if min(change.repeats) < 2 else "no spread")
    return _styled(change, mark + said)


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
        "only_a": [key.stored.json for key in found.only_a],
        "only_b": [key.stored.json for key in found.only_b],
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
    return {"key": pair.key.stored.json, "broken": pair.broken, **changes}


def _note_missing(found: Comparison) -> None:
    for name, keys in (("A", found.only_a), ("B", found.only_b)):
        for key in keys[:MOST_LISTED]:
            TERMINAL.note(f"only in {name}: {key.label}")
        if len(keys) > MOST_LISTED:
            TERMINAL.note(f"only in {name}: {len(keys) - MOST_LISTED} more")


def _note_untested(found: Comparison, figures: Sequence[str]) -> None:
    """What a gate cannot judge must not look as if it had passed."""
    changes = [c for pair in found.pairs for c in pair.changes if c.figure in figures]
    untested = sum(change.verdict == "not testable" for change in changes)
    if untested:
        TERMINAL.note(
            f"{untested:,} of {len(changes):,} figures could not be tested; record both with "
            "--repeat 3 or more"
        )
