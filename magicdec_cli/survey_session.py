"""Runs `magicdec profile survey`; whatever happens, what is finished is kept."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from magicdec.cli import session_api
from magicdec.cli.grid_size import size_line
from magicdec.cli.knobs import Settings
from magicdec.cli.live_state import SPECULATIVE, LiveState
from magicdec.cli.prediction import usable_calibration
from magicdec.cli.progress import Display
from magicdec.cli.run_session import run_info
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import FULL, DraftSpec
from magicdec.engine.events import Event
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.text.documents import digests
from magicdec.engine.text.workloads.names import require_length
from magicdec.profiles.calibration_fit import shape_of
from magicdec.profiles.expected import READ, Pace
from magicdec.profiles.survey.surveying import TRACE_GAMMA, Survey, Surveyed, as_run


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
