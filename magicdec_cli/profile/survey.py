"""Runs `magicdec profile survey`; whatever happens, what is finished is kept."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from magicdec.cli import session_api
from magicdec.cli.output.columns import Column, Row, render
from magicdec.cli.output.console import TERMINAL, Symbols, plain_text, symbols
from magicdec.cli.output.live_state import SPECULATIVE, LiveState
from magicdec.cli.output.numbers import clock, counted, rate
from magicdec.cli.output.progress import Display
from magicdec.cli.output.tables import Format, print_json, print_listing
from magicdec.cli.run.prediction import usable_calibration
from magicdec.cli.run.session import run_info
from magicdec.cli.settings.grid_size import size_line
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import FULL, DraftSpec
from magicdec.engine.events import Event
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.text.documents import digests
from magicdec.engine.text.ruler.names import require_length
from magicdec.profiles.acceptance.record import Estimate, estimates, survey_record
from magicdec.profiles.acceptance.survey import TRACE_GAMMA, Survey, Surveyed, as_run
from magicdec.profiles.calibration.fit import shape_of
from magicdec.profiles.machine.expected_time import READ, Pace


@dataclass(slots=True)
class SurveyOutcome:
    """What a survey has so far."""

    settings: Settings
    config: DecodeConfig
    drafters: Sequence[DraftSpec]
    gammas: Sequence[int]
    env: dict[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    trace: RunReport | None = None  # the one real run
    results: list[Surveyed] = field(default_factory=list)
    seconds: float = 0.0  # prefill, traced run and all drafters
    interrupted: bool = False
    error: Exception | None = None


def survey_session(outcome: SurveyOutcome, sources: Sequence[str], display: Display) -> None:
    """Ctrl-C or an error ends it early and marks the outcome."""
    try:
        _survey(outcome, sources, display)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except Exception as error:  # raised once what is finished has been delivered
        outcome.error = error


def _survey(outcome: SurveyOutcome, sources: Sequence[str], display: Display) -> None:
    settings, config = outcome.settings, outcome.config
    require_length(sources, settings.context)
    session, documents = session_api.open_engine(sources, settings, display.loading)
    outcome.env = {**session.environment(), "documents": digests(documents)}
    requests = session.requests(
        documents, context=settings.context, batch=settings.batch, take=settings.take,
        rows=settings.rows, prompt=settings.prompt, raw=settings.raw,
    )  # fmt: skip
    told = [warning for document in documents for warning in document.warnings]
    outcome.warnings = (*told, *session.warnings(requests, config))
    session.plan_memory(requests, as_run(config, outcome.drafters), batch=len(requests))
    outcome.env["draft_identities"] = {
        drafter.draft: identity
        for drafter in outcome.drafters
        if (identity := session.drafts.identity(config.drafted_by(drafter, TRACE_GAMMA)))
    }
    survey = Survey(session, requests, config, outcome.drafters)
    calibration, _ = usable_calibration(settings, outcome.env)
    pace = Pace.of(calibration, shape_of(session.spec, session.model_name), outcome.env)
    longest, count = max(len(request.tokens) for request in requests), len(outcome.drafters)
    runs = pace.decode(len(requests), longest, config.max_new_tokens) * (1 + READ * count)
    cells = count * len(outcome.gammas)
    display.note(size_line(cells, pace.prefill(longest) + runs, pace.guessed))

    shown = dataclasses.replace(
        settings, gamma=TRACE_GAMMA, batch=len(requests), selector=survey.tracer.selector or FULL,
        budget=survey.tracer.budget or settings.budget,
    )  # fmt: skip
    state = LiveState(run_info(shown, outcome.env, requests), SPECULATIVE, Recorder())

    def listen(event: Event) -> None:
        state.recorder.add(event)
        state.add(event)
        display.event(event)

    begun = time.perf_counter()
    display.begin(state)
    outcome.trace = survey.trace(listen)
    results = survey.results()
    for done, drafter in enumerate(outcome.drafters):
        what = f"survey: {drafter.way}"
        display.loading(what, done / len(outcome.drafters))
        outcome.results.append(next(results))
        outcome.seconds = time.perf_counter() - begun


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
