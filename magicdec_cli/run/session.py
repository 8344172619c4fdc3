"""Runs the passes of `magicdec run`; whatever happens, what is finished is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from magicdec.cli import session_api
from magicdec.cli.output.live_state import PLAIN, SPECULATIVE, LiveState, RunInfo
from magicdec.cli.output.progress import Display
from magicdec.cli.run.trees import tree_text, with_shape
from magicdec.cli.settings.knobs import SAMPLING, Settings
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import FULL
from magicdec.engine.events import RowStarted
from magicdec.engine.gamma.policy import FIXED, GammaPolicy
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.text.ruler.names import require_length
from magicdec.engine.untrusted import clean

if TYPE_CHECKING:
    from magicdec.cli.run.prediction import Judged, Prediction
    from magicdec.profiles.machine.steadiness import Steadiness


@dataclass(slots=True)
class Outcome:
    """What a run has so far; complete unless it was interrupted or failed."""

    settings: Settings
    compare: bool
    interrupted: bool = False
    error: Exception | None = None  # what ended the run early
    env: dict[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    memory: list[tuple[str, int]] = field(default_factory=list)
    info: RunInfo | None = None
    prediction: Prediction | None = None
    policy: GammaPolicy = FIXED
    plain: Recorder = field(default_factory=Recorder)
    main: Recorder = field(default_factory=Recorder)
    lossless: Losslessness | None = None
    steadiness: Steadiness | None = None  # of a finished comparison

    @property
    def report(self) -> RunReport:
        return self.main.report()

    @property
    def baseline(self) -> RunReport | None:
        return self.plain.report() if self.compare else None

    @property
    def judged(self) -> Judged | None:
        """The prediction beside the run, once that is finished."""
        if self.prediction is None:
            return None
        return self.prediction.judge(self.report, self.baseline)

    @property
    def decoded(self) -> bool:
        """Whether any pass has made a step, or ended a row: else there is nothing to report."""
        passes = (self.main.report(), self.plain.report())
        return any(made.steps or any(row.finish_reason for row in made.rows) for made in passes)


def run_session(outcome: Outcome, sources: Sequence[str], display: Display) -> None:
    """Reads, loads, prefills, decodes. Ctrl-C or an error ends it early and marks the outcome."""
    from magicdec.cli.run.gamma import with_calibration
    from magicdec.cli.run.prediction import forecast  # imports numpy, which listings do without

    settings = outcome.settings
    config = settings.decode_config()
    session = None
    try:
        require_length(sources, settings.context)
        session = session_api.open_session(sources, settings, display.loading)
        outcome.env = session.environment()
        requests = session.requests()
        outcome.warnings = tuple(session.warnings())
        outcome.memory = session.memory()
        outcome.prediction, line = forecast(settings, outcome.env, requests)
        if line and (outcome.prediction or outcome.compare or "stale" in line):
            display.note(line)
        config, line = with_shape(config, settings, outcome.env, requests)
        if line:
            display.note(line)
        config = with_calibration(config, settings, outcome.env, requests)
        outcome.policy = config.gamma_policy
        outcome.info = run_info(settings, outcome.env, requests, outcome.prediction)
        if outcome.compare:
            _compare(session, config, outcome, display)
            outcome.lossless = session.check(outcome.plain.report(), outcome.main.report())
        else:
            _decode(session, config, outcome, display)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except Exception as error:  # raised once what is finished has been delivered
        outcome.error = error
    finally:
        if outcome.info is not None and session is not None:
            outcome.warnings = tuple(session.warnings())  # and those of the passes
            if outcome.steadiness is not None and outcome.steadiness.warning is not None:
                outcome.warnings += (outcome.steadiness.warning,)


def _decode(
    session: session_api.Session, config: DecodeConfig, outcome: Outcome, display: Display
) -> None:
    assert outcome.info is not None
    state = LiveState(outcome.info, SPECULATIVE if config.gamma else PLAIN, outcome.main)
    display.begin(state)
    with closing(session.run(config)) as events:  # an interrupt ends it here, not when collected
        for event in events:
            outcome.main.add(event)
            state.add(event)
            display.event(event)


def _compare(
    session: session_api.Session, config: DecodeConfig, outcome: Outcome, display: Display
) -> None:
    """Both passes in turns; the one whose turn it is is shown."""
    from magicdec.profiles.machine.other_programs import OthersLoad
    from magicdec.profiles.machine.steadiness import Turns

    assert outcome.info is not None
    states = (
        LiveState(outcome.info, PLAIN, outcome.plain),
        LiveState(outcome.info, SPECULATIVE, outcome.main),
    )
    turns, shown = Turns(), None
    others: OthersLoad | None = None  # while rows are decoded
    with closing(session.compare(config)) as events:
        for speculative, event in events:
            state = states[speculative]
            if state is not shown:
                if speculative:
                    state.baseline = outcome.plain.tally()
                display.begin(state)
                shown = state
            if others is None and isinstance(event, RowStarted):
                others = OthersLoad()
            state.recorder.add(event)
            state.add(event)
            turns.add(speculative, event)
            display.event(event)
    outcome.steadiness = turns.result(None if others is None else others.share)


def run_info(
    settings: Settings,
    env: Mapping[str, object],
    requests: Sequence[Request],
    prediction: Prediction | None = None,
) -> RunInfo:
    """The settings that frame a run's numbers, as they came out in this environment."""
    dtype, kv = (str(env.get(key, getattr(settings, key))) for key in ("dtype", "kv_dtype"))
    selector = clean(_drafter(settings))
    if env.get("draft_weights") == "int8":
        selector += ", int8 weights"
    return RunInfo(
        model=clean(Path(settings.model).name or settings.model),
        device=str(env.get("device", settings.device)),
        dtype=dtype if kv in (dtype, "auto") else f"{dtype}, KV {kv}",
        selector=selector,
        batch=settings.batch,
        context=max(len(request.tokens) for request in requests),
        budget=settings.budget if settings.selects else None,
        gamma=settings.gamma,
        gamma_policy=settings.policy.name,
        tree=tree_text(settings),
        temperature=settings.temperature,
        penalties=penalties_text(settings),
        rows=len(requests),
        max_new_tokens=settings.max_new_tokens,
        predicted=prediction.seconds.speedup if prediction else None,
    )


def penalties_text(settings: Settings) -> str:
    """Those that apply, in a few words."""
    names = ("repetition", "presence", "frequency")
    off = SAMPLING.repetition_penalty, SAMPLING.presence_penalty, SAMPLING.frequency_penalty
    return ", ".join(
        f"{name} {value:g}"
        for name, value, idle in zip(names, settings.penalties, off, strict=True)
        if value != idle
    )


def _drafter(settings: Settings) -> str:
    """Who drafts over what, in a few words."""
    who = settings.who
    if who.kind == "lookup":
        return who.name
    kept = FULL if settings.draft_kv == FULL else settings.selector.rpartition(":")[2]
    if who.kind == "self":
        return kept
    alone = kept == FULL and not who.cascades
    return f"{who.short}, {kept}{' KV' if alone else ''}"
