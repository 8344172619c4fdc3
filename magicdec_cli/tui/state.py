"""All that the app knows, from the reports of the engine. No Textual here: tested without it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from magicdec.cli.output.live_state import PLAIN
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.forecast import Forecast
from magicdec.cli.tui.process.messages import (
    Checking,
    Failed,
    Gone,
    Happened,
    Loading,
    PassBegan,
    Ready,
    Report,
    RunBegan,
    RunEnded,
    TuneEnded,
    TuneStep,
)
from magicdec.cli.tui.runs import Pass, RunState
from magicdec.engine.gamma.policy import FIXED

Phase = Literal["loading", "idle", "running", "tuning", "failed", "gone"]
LOG_LINES = 500


@dataclass(frozen=True, slots=True)
class Line:
    """Of the log; `at` in seconds since the app started."""

    at: float
    text: str
    kind: Literal["", "warning", "error"] = ""


@dataclass(slots=True)
class Tuning:
    """Changes by `apply` and `begin` alone. `now` is a clock in seconds; 0 is the app's start."""

    now: Callable[[], float]
    phase: Phase = "loading"
    loading: Loading | None = None
    ready: Ready | None = None
    runs: dict[int, RunState] = field(default_factory=dict)
    tuned: list[TuneEnded] = field(default_factory=list)
    tunings: int = 0  # that were asked for
    pinned: int | None = None
    stopping: bool = False
    sweep: tuple[int, int] | None = None  # which of how many runs of a sweep this one is
    log: deque[Line] = field(default_factory=lambda: deque(maxlen=LOG_LINES))

    @property
    def tuned_settings(self) -> int:
        """How many settings the tuner's real runs measured."""
        return sum(max(len(report.profile) - 1, 0) for report in self.tuned)

    @property
    def current(self) -> RunState | None:
        """The run that is going on."""
        last = self.last
        return last if last is not None and not last.over else None

    @property
    def last(self) -> RunState | None:
        return self.runs[max(self.runs)] if self.runs else None

    def begin(self, settings: Settings, predicted: Forecast | None) -> RunState:
        """A run that was asked for."""
        number = max(self.runs, default=0) + 1
        run = RunState(number, settings, self.now(), predicted)
        self.runs[number] = run
        self.phase, self.stopping, self.loading, self.sweep = "running", False, None, None
        return run

    def begin_tuning(self) -> int:
        """The number of a tuning that was asked for."""
        self.tunings += 1
        self.phase, self.stopping, self.loading = "tuning", False, Loading("tuning")
        self.note(f"tuning {self.tunings}")
        return -self.tunings

    def apply(self, report: Report) -> None:
        match report:
            case Loading():
                self._note_loading(report)
            case Ready():
                self.phase, self.ready, self.loading = "idle", report, None
                name = report.environment.get("device_name") or report.environment.get("device")
                self.note(f"{report.shape.name} is loaded on {name}")
            case Failed():
                self.phase, self.loading = "failed", None
                self.note(report.error, "error")
            case Gone():
                self._end_current(report.error)
                self.phase, self.loading, self.ready = "gone", None, None
                self.note(report.error, "error")
            case RunBegan():
                self._run_began(report)
            case PassBegan():
                self._pass_began(report)
            case Happened():
                run = self.runs[report.run]
                if not run.over and run.main is not None:
                    run.main.add(report.event, dict(report.rejected))
            case Checking():
                self.runs[report.run].status = "checking"
            case RunEnded():
                self._run_ended(report)
            case TuneStep():
                if self.phase == "tuning":
                    self._note_loading(Loading(report.what, report.share))
            case TuneEnded():
                self._tune_ended(report)

    def note(self, text: str, kind: Literal["", "warning", "error"] = "") -> None:
        self.log.append(Line(self.now(), text, kind))

    def plain_of(self, run: RunState) -> Pass | None:
        """The plain pass that `run` is compared with, if it has begun."""
        source = self.runs.get(run.plain_run) if run.plain_run is not None else None
        return source.passes.get(PLAIN) if source is not None else None

    def _note_loading(self, report: Loading) -> None:
        if self.loading is None or self.loading.what != report.what:
            self.note(report.what)
        self.loading = report

    def _run_began(self, report: RunBegan) -> None:
        run = self.runs[report.run]
        run.info, run.environment, run.memory = report.info, report.environment, report.memory
        run.plain_run = report.plain_run
        self.loading = None
        if report.plain_run not in (None, report.run):
            self.note(f"run {report.run}: plain decoding is known from run {report.plain_run}")
        for text in report.notes:
            self.note(f"run {report.run}: {text}")

    def _pass_began(self, report: PassBegan) -> None:
        run = self.runs[report.run]
        run.begin_pass(report.title, self.plain_of(run) if report.title != PLAIN else None)
        self.note(f"run {report.run}: {report.title} decoding")

    def _run_ended(self, report: RunEnded) -> None:
        run = self.runs[report.run]
        if run.over:
            return
        run.status, run.error, run.lossless = report.status, report.error, report.lossless
        run.warnings, run.ended = report.warnings, self.now()
        run.steadiness = report.steadiness
        self.phase, self.stopping, self.loading = "idle", False, None
        for warning in report.warnings:
            if all(line.text != warning for line in self.log):
                self.note(warning, "warning")
        if report.error is not None:
            self.note(f"run {run.number}: {report.error}", "error")
        else:
            self.note(f"run {run.number}: {report.status}")
            self._note_way(run)
        if run.steadiness is not None and run.steadiness.warning is not None:
            shared = run.plain_run not in (None, run.number)
            both = f"; plain decoding is run {run.plain_run}'s, `Run, plain anew` measures both"
            self.note(f"run {run.number}: {run.steadiness.warning}{both * shared}", "warning")

    def _note_way(self, run: RunState) -> None:
        """What a policy of γ, or a cascade, came to."""
        if run.speculative is None:
            return
        tally, settings = run.speculative.tally, run.settings
        if settings.gamma_policy != FIXED.name and tally.mean_gamma is not None:
            mean = f"mean {tally.mean_gamma:.2f} of at most {settings.gamma}"
            self.note(f"run {run.number}: γ {settings.gamma_policy}, {mean}")
        if (inner := tally.inner) is not None:
            judged = f"{inner.accepted:,} of {inner.drafted:,} accepted by the self-draft"
            self.note(f"run {run.number}: inner drafts, {judged}")

    def _tune_ended(self, report: TuneEnded) -> None:
        self.tuned.append(report)
        self.phase, self.stopping, self.loading = "idle", False, None
        for text in report.notes:
            self.note(text, "warning")
        if report.error is not None:
            self.note(f"tuning: {report.error}", "error")
        for text in (report.status, report.headline, *report.reasons):
            if text:
                self.note(f"tuning: {text}")

    def _end_current(self, error: str) -> None:
        run = self.current
        if run is not None:
            run.status, run.error, run.ended = "failed", error, self.now()
        self.stopping = False
