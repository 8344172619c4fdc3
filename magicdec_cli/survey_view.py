"""A survey as table, CSV, Markdown or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from magicdec.cli.bars import clock, counted, rate
from magicdec.cli.columns import Column, Row, render
from magicdec.cli.console import TERMINAL, Symbols, plain_text, symbols
from magicdec.cli.survey_session import SurveyOutcome
from magicdec.cli.tables import Format, print_json, print_listing
from magicdec.profiles.survey.record import Estimate, estimates, survey_record

COLUMNS = (
    "draft", "draft_kv", "selector", "budget", "draft_weights", "alpha", "gamma",
    "mean_acceptance_length", "interval_low", "interval_high", "acceptance_rate_per_position",
)  # fmt: skip


def deliver(outcome: SurveyOutcome, format: Format) -> None:
    """Writes to stdout: a line per drafter as a table, per drafter and γ otherwise."""
    if format == "json":
        assert outcome.trace is not None
        print_json(
            survey_record(
                outcome.results, outcome.gammas, outcome.trace, env=outcome.env,
                config=dataclasses.asdict(outcome.settings), seconds=outcome.seconds,
                warnings=outcome.warnings, interrupted=outcome.interrupted,
                error=None if outcome.error is None else str(outcome.error),
            )
        )  # fmt: skip
        return
    found = [(result, estimates(result, outcome.gammas)) for result in outcome.results]
    if format == "table":
        _table(outcome, found)
        return
    rows: list[list[Any]] = [
        [
            result.drafter.draft, result.drafter.draft_kv, result.drafter.selector,
            result.drafter.budget, result.weights, result.alpha,
            each.gamma, each.length, *(each.interval or (None, None)), list(each.rates),
        ]
        for result, of_gammas in found
        for each in of_gammas
    ]  # fmt: skip
    print_listing(COLUMNS, rows, format)


def _table(outcome: SurveyOutcome, found: list[Any]) -> None:
    look = symbols(TERMINAL.out)
    rows: list[Row] = [
        {
            "drafter": result.drafter,
            "weights": result.weights,
            "alpha": result.alpha,
            "lengths": {each.gamma: each.length for each in of_gammas},
            "widest": _widest(of_gammas),
        }
        for result, of_gammas in found
    ]
    table, left_out = render(rows, _columns(outcome.gammas, look), TERMINAL.out.width, look)
    TERMINAL.out.print(table)
    tokens = sum(len(row) for row in outcome.results[0].kept) if outcome.results else 0
    rows_seen = len(outcome.results[0].kept) if outcome.results else 0
    TERMINAL.note(
        f"tokens per step for each draft length; {counted(rows_seen, 'row')}, "
        f"{counted(tokens, 'token')}, {clock(outcome.seconds)} in all"
        + ("" if rows_seen > 1 else "; one row says nothing of how far others differ")
    )
    if left_out:
        titles = plain_text(", ".join(left_out), look)
        TERMINAL.note(f"no room for {titles}: widen the terminal, or --format csv")


def _columns(gammas: Sequence[int], look: Symbols) -> list[Column]:
    """Draft lengths from the first on; the weights, mostly the same in all lines, come last."""
    return [
        Column("drafter", 0, lambda row, look: Text(row["drafter"].way, "cyan"), left=True),
        Column("weights", 1000, lambda row, look: row["weights"], left=True),
        Column("α", 1, lambda row, look: rate(row["alpha"])),
        *(_length(gamma, 3 + place) for place, gamma in enumerate(gammas)),
        Column("±" if look.gamma == "γ" else "+-", 2, lambda row, look: row["widest"]),
    ]


def _length(gamma: int, rank: int) -> Column:
    return Column(f"γ {gamma}", rank, lambda row, look: f"{row['lengths'][gamma]:.2f}")


def _widest(of_gammas: list[Estimate]) -> str:
    """How far the interval of any draft length reaches, to its longer side."""
    reaches = [
        max(each.length - each.interval[0], each.interval[1] - each.length)
        for each in of_gammas
        if each.interval
    ]
    return f"{max(reaches):.2f}" if reaches else "-"
