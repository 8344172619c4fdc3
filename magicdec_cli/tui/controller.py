"""What the keys do: runs, stops, sweeps and knobs, between the state and the engine."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.forecast import Forecast, Forecaster
from magicdec.cli.tui.knobs import TuiKnob
from magicdec.cli.tui.process.link import Link, Listener
from magicdec.cli.tui.process.messages import (
    Failed,
    Gone,
    Open,
    Ready,
    Report,
    Run,
    RunEnded,
    Stop,
    Tune,
    TuneEnded,
)
from magicdec.cli.tui.session_log import recorded_run, tuned_profile
from magicdec.cli.tui.state import Tuning
from magicdec.profiles.recorded.schema import Profile


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the person has to be told. Errors and answers open a dialog."""

    title: str
    text: str
    kind: Literal["note", "answer", "error"] = "note"


class Log(Protocol):
    def keep(self, profile: Profile | None) -> str | None:
        """Keeps runs that have ended; returns what went wrong."""


@dataclass(frozen=True, slots=True)
class Exploring:
    """A sweep of one knob, under way or done."""

    knob: TuiKnob
    values: tuple[float, ...]


class Controller:
    def __init__(
        self, link: Link, sources: Sequence[str], settings: Settings, now: Callable[[], float],
        log: Log | None = None,
    ) -> None:  # fmt: skip
        self.link, self.sources, self.settings, self.log = link, tuple(sources), settings, log
        self.tuning = Tuning(now)
        self.forecaster = Forecaster()
        self.shown: int | None = None  # None: always the last run
        self.exploring: Exploring | None = None
        self._queue: deque[Settings] = deque()
        self._listener: Listener | None = None
        self._run_when_ready = False

    def start(self, listener: Listener) -> None:
        """Starts the engine and loads what was asked for."""
        self._listener = listener
        self.link.start(listener)
        self.open(self.sources)

    def open(self, sources: Sequence[str]) -> None:
        self.sources = tuple(sources)
        self.tuning.phase = "loading"
        self.link.send(Open(self.sources, self.settings))

    def run(self, *, again: bool = False) -> Notice | None:
        """Runs the settings. `again` measures plain decoding anew. The notice says why not."""
        match self.tuning.phase:
            case "loading":
                self._run_when_ready = True
                return Notice("loading", "it runs as soon as the model is loaded")
            case "running" | "tuning":
                return Notice("not yet", f"{self.busy}; x stops it")
            case "failed":
                return Notice("not yet", "nothing is loaded; d opens other documents")
            case "gone":
                assert self._listener is not None
                self.start(self._listener)
                return Notice("starting", "the engine starts again")
        self.settings = self.link.bound(self.settings) or self.settings
        run = self.tuning.begin(self.settings, self.forecast())
        self.shown = None
        self.link.send(Run(run.number, self.settings, again))
        return None

    def stop(self) -> None:
        """Ends the current run within a step, and what was to come after it."""
        self._queue.clear()
        self._run_when_ready = False
        run = self.tuning.current
        tuning = -self.tuning.tunings if self.tuning.phase == "tuning" else None
        number = run.number if run is not None else tuning
        if number is not None and not self.tuning.stopping:
            self.tuning.stopping = True
            self.link.send(Stop(number))

    def tune(self, selectors: Sequence[str]) -> Notice | None:
        """Looks for the best settings at this batch and context; the knobs get the answer."""
        if self.tuning.phase != "idle":
            return Notice("not yet", "wait until the engine is ready")
        number = self.tuning.begin_tuning()
        self.link.send(Tune(number, self.settings, tuple(selectors)))
        return None

    @property
    def busy(self) -> str:
        """What goes on; empty when nothing does."""
        doing = {"running": "a run is going on", "tuning": "the tuner is at work"}
        return doing.get(self.tuning.phase, "")

    def explore(self, knob: TuiKnob, values: Sequence[float]) -> Notice | None:
        """Runs the settings once for each value of a numeric knob. Raises ConfigError."""
        whole = knob.knob.kind == "int"
        sweep = [knob.put(self.settings, int(v) if whole else v) for v in values]
        if self.tuning.phase != "idle":
            return Notice("not yet", "wait until the engine is ready")
        self.exploring = Exploring(knob, tuple(sorted(values)))
        self._queue = deque(sweep)
        return self._next_of_sweep()

    @property
    def waiting(self) -> int:
        """Runs of a sweep that are still to come."""
        return len(self._queue)

    def choose(self, settings: Settings) -> None:
        """The knobs' new settings; a sweep that is over no longer fixes the curve's range."""
        if self.exploring is not None and not self._queue:
            name = self.exploring.knob.name
            put = {name: getattr(settings, name)}
            if dataclasses.replace(self.settings, **put) != settings:
                self.exploring = None
        self.settings = settings

    def pin(self) -> int | None:
        """Pins the run that is shown, or frees it when it is pinned already."""
        run = self.shown if self.shown is not None else max(self.tuning.runs, default=None)
        self.tuning.pinned = None if run == self.tuning.pinned else run
        return self.tuning.pinned

    def receive(self, report: Report) -> Notice | None:
        self.tuning.apply(report)
        match report:
            case Ready():
                self.tuning.note(self.forecaster.see(report))
                wanted, self._run_when_ready = self._run_when_ready, False
                return self.run() if wanted else None
            case Failed():
                self._run_when_ready = False
                return Notice("cannot open", report.error, "error")
            case Gone():
                self._queue.clear()
                return Notice("the engine ended", report.error, "error")
            case RunEnded():
                return self._ended(report)
            case TuneEnded():
                return self._tuned(report)
        return None

    def forecast(self, settings: Settings | None = None) -> Forecast | None:
        return self.forecaster.forecast(settings or self.settings, self._whole_context())

    def no_forecast(self) -> str:
        """Why there is no prediction of the settings."""
        unpriced = self.forecaster.unpriced(self.settings)
        if unpriced:
            return unpriced
        if self.forecaster.ready is None:
            return "preview once the model is loaded"
        if self.settings.context is None and self._whole_context() is None:
            return "no preview: the documents' length is not known yet"
        if self.forecaster.unknown(self.settings):
            return "acceptance unknown: press r"
        return "no preview: unknown machine"

    def needed_memory(self) -> float | None:
        return self.forecaster.memory(self.settings, self._whole_context())

    def _whole_context(self) -> int | None:
        """How long the documents are, once a run has read all of them."""
        if self.settings.context is not None:
            return None
        whole = (r.info.context for r in self.tuning.runs.values()
                 if r.info is not None and r.settings.context is None)  # fmt: skip
        return next(whole, None)

    def _ended(self, report: RunEnded) -> Notice | None:
        run = self.tuning.runs[report.run]
        speculative = run.speculative
        if speculative is not None and run.settings.predictable:  # others accept otherwise
            shares = speculative.tally.acceptance_rate_per_position
            weights = str(run.environment.get("draft_weights", "same"))
            self.forecaster.book.learn(run.number, run.settings, weights, shares)
            plain = self.tuning.plain_of(run)
            if report.status == "finished" and plain is not None and run.info is not None:
                self.forecaster.learn(
                    run.number, run.settings, run.info.context, plain.tally, speculative.tally
                )
        self._keep(recorded_run(run, self.tuning))
        if report.status == "failed":
            self._queue.clear()
            return Notice(f"run {report.run} failed", report.error or "", "error")
        return self._next_of_sweep() if self._queue else None

    def _tuned(self, report: TuneEnded) -> Notice | None:
        for seen in report.learned:
            self.forecaster.book.learn(report.run, seen.settings, seen.weights, seen.per_position)
        if self.tuning.ready is not None:
            self.forecaster.see(self.tuning.ready)  # the tuner may have calibrated
        self._keep(tuned_profile(report))
        if report.status == "failed":
            return Notice("tuning failed", report.error or "", "error")
        if report.answer is None or report.status == "stopped":
            return Notice("tuning stopped", report.headline or "nothing is known yet")
        self.choose(report.answer)
        text = [report.headline, " ".join(report.reasons), "The knobs are set to it; r runs it."]
        return Notice("tuned", "\n\n".join(part for part in text if part), "answer")

    def _keep(self, profile: Profile | None) -> None:
        trouble = self.log.keep(profile) if self.log is not None else None
        if trouble is not None:
            self.tuning.note(trouble, "warning")
            self.log = None

    def _next_of_sweep(self) -> Notice | None:
        assert self.exploring is not None
        self.settings = self._queue.popleft()
        notice = self.run()
        total = len(self.exploring.values)
        self.tuning.sweep = total - self.waiting, total
        return notice
