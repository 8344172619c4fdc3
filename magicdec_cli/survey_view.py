"""A survey as table, CSV, Markdown or JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from magicdec.cli.bars import clock, counted, rate
from magicdec.cli.console import TERMINAL, symbols
from magicdec.cli.survey_session import SurveyOutcome
from magicdec.cli.tables import Format, print_json, print_listing
from magicdec.profiles.survey.record import Estimate, estimates, survey_record

COLUMNS = (
    "selector", "budget", "draft_weights", "alpha", "gamma", "mean_acceptance_length",
    "interval_low", "interval_high", "acceptance_rate_per_position",
)  # fmt: skip


def deliver(outcome: SurveyOutcome, format: Format) -> None:
    """Writes to stdout: a line per drafter as a table, per drafter and γ otherwise."""
    if format == "json":
        assert outcome.plain is not None
        print_json(
            survey_record(
                outcome.results, outcome.gammas, outcome.plain, env=outcome.env,
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
            result.drafter.selector, result.drafter.budget, result.weights, result.alpha,
            each.gamma, each.length, *(each.interval or (None, None)), list(each.rates),
        ]
        for result, of_gammas in found
        for each in of_gammas
    ]  # fmt: skip
    print_listing(COLUMNS, rows, format)


def _table(outcome: SurveyOutcome, found: list[Any]) -> None:
    look = symbols(TERMINAL.out)
    omega = f"{look.gamma} "
    columns = ["selector", "budget", "weights", rate_title(look.gamma)]
    columns += [f"{omega}{gamma}" for gamma in outcome.gammas]
    columns.append("±" if look.gamma == "γ" else "+-")
    rows = []
    for result, of_gammas in found:
        lengths = [f"{each.length:.2f}" for each in of_gammas]
        drafter = result.drafter
        rows.append(
            [drafter.selector, drafter.budget, result.weights, rate(result.alpha), *lengths,
             _widest(of_gammas)]
        )  # fmt: skip
    print_listing(columns, rows, "table")
    tokens = sum(len(row) for row in outcome.results[0].kept) if outcome.results else 0
    rows_seen = len(outcome.results[0].kept) if outcome.results else 0
    TERMINAL.note(
        f"tokens per step for each draft length; {counted(rows_seen, 'row')}, "
        f"{counted(tokens, 'token')}, {clock(outcome.seconds)} in all"
    )


def rate_title(gamma: str) -> str:
    return "α" if gamma == "γ" else "alpha"


def _widest(of_gammas: list[Estimate]) -> str:
    halves = [(each.interval[1] - each.interval[0]) / 2 for each in of_gammas if each.interval]
    return f"{max(halves):.2f}" if halves else "-"
