"""One run as the app knows it: settings, passes, and what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from magicdec.cli.knobs import Settings
from magicdec.cli.live_state import PLAIN, SPECULATIVE, LiveState, RunInfo
from magicdec.cli.tui.forecast import Forecast
from magicdec.cli.tui.pace import Measured, Pace, live_speedup, spread_of
from magicdec.engine.events import Event, StepFinished
from magicdec.engine.report import Recorder, RunReport, Tally
from magicdec.engine.verdict import Losslessness
from magicdec.profiles.records import Speedup
from magicdec.profiles.steadiness import Steadiness

Status = Literal[
    "starting", "plain", "speculative", "checking", "finished", "stopped", "failed"
]  # fmt: skip
ENDED = ("finished", "stopped", "failed")
KEPT = 1000  # steps whose times are exported


@dataclass(slots=True)
class Pass:
    """One pass over the rows."""

    state: LiveState
    pace: Pace = field(default_factory=Pace)
    history: list[tuple[int, int]] = field(default_factory=list)  # accepted, drafted of each step
    steps: deque[StepFinished] = field(default_factory=lambda: deque(maxlen=KEPT))
    _report: RunReport | None = None

    def add(self, event: Event, rejected: Mapping[int, str] = MappingProxyType({})) -> None:
        self.state.recorder.add(event)
        self.state.add(event)
        if isinstance(event, StepFinished):
            self.pace.add(event)
            self.steps.append(event)
            for share in event.rows:
                self.state.rows[share.row].rejected = rejected.get(share.row, "")
            drafted = sum(share.judged for share in event.rows)
            if drafted:
                accepted = sum(share.accepted for share in event.rows)
                self.history.append((accepted, drafted))

    @property
    def tally(self) -> Tally:
        return self.state.recorder.tally()

    def report(self) -> RunReport:
        """Copied once, when the pass is over."""
        if self._report is None:
            report = self.state.recorder.report()
            if not report.finished:
                return report
            self._report = report
        return self._report


@dataclass(slots=True)
class RunState:
    """Grows with the reports about it; `began` and `ended` are seconds of the app's clock."""

    number: int
    settings: Settings
    began: float
    predicted: Forecast | None = None
    status: Status = "starting"
    info: RunInfo | None = None
    environment: Mapping[str, object] = field(default_factory=dict)
    memory: tuple[tuple[str, int], ...] = ()
    plain_run: int | None = None
    passes: dict[str, Pass] = field(default_factory=dict)
    ended: float | None = None
    error: str | None = None
    lossless: Losslessness | None = None
    warnings: tuple[str, ...] = ()
    steadiness: Steadiness | None = None

    def begin_pass(self, title: str, baseline: Pass | None) -> None:
        assert self.info is not None
        self.status = "plain" if title == PLAIN else "speculative"
        tally = baseline.tally if baseline is not None else None
        self.passes[title] = Pass(LiveState(self.info, title, Recorder(), tally))

    @property
    def over(self) -> bool:
        return self.status in ENDED

    @property
    def main(self) -> Pass | None:
        """The pass whose numbers are shown: the speculative one as soon as there is one."""
        return self.passes.get(SPECULATIVE) or self.passes.get(PLAIN)

    @property
    def speculative(self) -> Pass | None:
        return self.passes.get(SPECULATIVE)

    def measured(self, plain: Pass | None) -> Measured | None:
        """Against `plain`, from this run or an earlier one."""
        speculative = self.speculative
        if plain is None or speculative is None:
            return None
        if not speculative.tally.finished or not plain.tally.finished:
            return live_speedup(plain.pace, speculative.pace)
        ratio = Speedup.of(plain.report(), speculative.report()).decode
        if ratio is None:
            return None
        return Measured(ratio, spread_of(ratio, plain.pace, speculative.pace), True)
