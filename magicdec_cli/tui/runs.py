"""One run as the app knows it: settings, passes, and what came of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from magicdec.cli.output.live_state import PLAIN, SPECULATIVE, LiveState, RunInfo
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.forecast import Forecast
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.events import Event, StepFinished
from magicdec.engine.report import Recorder, RunReport, Tally
from magicdec.profiles.machine.steadiness import Steadiness
from magicdec.profiles.recorded.run_record import Speedup

FEWEST = 8  # steps on either side before a spread means anything
NORMAL_95 = 1.96


@dataclass(slots=True)
class Pace:
    """Fed with the steps of one pass."""

    _steps: int = 0
    _seconds: float = 0.0  # in steps
    _waited: float = 0.0  # between them
    _tokens: int = 0
    _squares: tuple[float, float, float] = (0.0, 0.0, 0.0)  # sums of t², t·n and n²

    def add(self, event: StepFinished) -> None:
        seconds, tokens = event.phases.decode, sum(len(share.tokens) for share in event.rows)
        self._steps += 1
        self._waited += event.waited.decode
        self._seconds += seconds
        self._tokens += tokens
        tt, tn, nn = self._squares
        self._squares = (tt + seconds**2, tn + seconds * tokens, nn + tokens**2)

    @property
    def seconds_per_token(self) -> float | None:
        """Of all rows together, selection included."""
        return (self._seconds + self._waited) / self._tokens if self._tokens else None

    @property
    def relative_variance(self) -> float | None:
        """Of the steps' seconds per token, as a ratio of two sums over steps (delta method).

        Steps are taken as independent, which a machine that slows down half-way is not.
        """
        if self._steps < FEWEST or not self._tokens or not self._seconds:
            return None
        ratio = self._seconds / self._tokens
        tt, tn, nn = self._squares
        residuals = max(tt - 2 * ratio * tn + ratio**2 * nn, 0.0)
        steps = self._steps
        return residuals / (steps - 1) * steps / self._seconds**2


@dataclass(frozen=True, slots=True)
class Measured:
    """A speedup and its 95% half-width from the variation of steps; None: too few steps."""

    speedup: float
    spread: float | None
    final: bool  # False: the run goes on


def live_speedup(plain: Pace, speculative: Pace) -> Measured | None:
    before, after = plain.seconds_per_token, speculative.seconds_per_token
    if before is None or not after:
        return None
    return Measured(before / after, spread_of(before / after, plain, speculative), False)


def spread_of(speedup: float, plain: Pace, speculative: Pace) -> float | None:
    """95% half-width of plain / speculative seconds per token: relative variances add."""
    variances = (plain.relative_variance, speculative.relative_variance)
    if variances[0] is None or variances[1] is None:
        return None
    return NORMAL_95 * speedup * math.sqrt(variances[0] + variances[1])


def bucketed(rates: Iterable[tuple[int, int]], width: int) -> list[float]:
    """(accepted, drafted) by step, as at most `width` rates; each pools as many steps."""
    steps = list(rates)
    size = max(-(-len(steps) // max(width, 1)), 1)
    pooled = []
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        drafted = sum(d for _, d in part)
        pooled.append(sum(a for a, _ in part) / drafted if drafted else 0.0)
    return pooled


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
