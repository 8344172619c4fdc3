"""What the panels show, as frozen data: taken at most a few times a second, kept while paused."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field

from magicdec.cli.output.live_state import PLAIN, LiveState, RowState, RunInfo
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.forecast import Forecast
from magicdec.cli.tui.process.messages import Loading
from magicdec.cli.tui.runs import Measured, Pass, RunState
from magicdec.cli.tui.state import Line, Phase, Tuning
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.events import PrefillProgress
from magicdec.engine.report import Tally

SHOWN_ROWS = 16  # whose text is taken along


@dataclass(frozen=True, slots=True)
class RunView:
    """One run in numbers. `tally` is that of the speculative pass as soon as there is one."""

    number: int
    settings: Settings
    status: str
    elapsed: float
    error: str | None
    info: RunInfo | None
    memory: int
    predicted: Forecast | None
    title: str = ""  # of the pass that is shown
    share: float = 0.0
    prefill: PrefillProgress | None = None
    tally: Tally | None = None
    plain: Tally | None = None
    plain_run: int | None = None
    history: tuple[tuple[int, int], ...] = ()
    measured: Measured | None = None
    lossless: Losslessness | None = None
    disturbed: str = ""  # what was seen of a machine that had other work; empty: it had none

    @property
    def drafting(self) -> Tally | None:
        """The tally, if it is one that has acceptance."""
        return self.tally if self.tally is not None and self.title != PLAIN else None

    @property
    def tokens_per_s(self) -> float | None:
        return self.tally.tokens_per_s if self.tally is not None else None

    @property
    def break_even(self) -> float | None:
        """Tokens per row and step at which this run would be as fast as plain decoding."""
        length = self.drafting.mean_acceptance_length if self.drafting else None
        return length / self.measured.speedup if length and self.measured else None

    @property
    def gap(self) -> float | None:
        """Measured against predicted, as a share of the prediction."""
        if self.measured is None or self.predicted is None:
            return None
        return self.measured.speedup / self.predicted.speedup - 1


@dataclass(frozen=True, slots=True)
class View:
    phase: Phase
    stopping: bool
    paused: bool
    demo: bool
    loading: Loading | None
    shown: RunView | None
    texts: LiveState | None  # the rows' texts of the pass that is shown
    runs: tuple[RunView, ...]
    pinned: int | None
    log: tuple[Line, ...]
    tuned: int = 0  # settings that the tuner ran, which are no runs of `runs`
    sweep: tuple[int, int] | None = None  # which of how many runs of a sweep goes on


@dataclass(slots=True)
class Viewer:
    """Takes views; what cannot change any more is looked at once."""

    tuning: Tuning
    demo: bool = False
    _over: dict[int, RunView] = field(default_factory=dict)

    def take(self, shown: int | None, paused: bool = False) -> View:
        """`shown`: the run whose numbers the panels show; None: the last."""
        tuning = self.tuning
        run = tuning.runs.get(shown) if shown is not None else tuning.last
        main = run.main if run is not None else None
        return View(
            tuning.phase, tuning.stopping, paused, self.demo, tuning.loading,
            self._view(run) if run is not None else None,
            _texts(main.state) if main is not None else None,
            tuple(self._view(known) for known in tuning.runs.values()),
            tuning.pinned, tuple(tuning.log), tuning.tuned_settings,
            tuning.sweep if tuning.phase == "running" else None,
        )  # fmt: skip

    def _view(self, run: RunState) -> RunView:
        if run.number in self._over:
            return self._over[run.number]
        view = run_view(self.tuning, run)
        if run.over:
            self._over[run.number] = view
        return view


def run_view(tuning: Tuning, run: RunState) -> RunView:
    plain, main, steady = tuning.plain_of(run), run.main, run.steadiness
    view = RunView(
        number=run.number, settings=run.settings, status=run.status, error=run.error,
        elapsed=(tuning.now() if run.ended is None else run.ended) - run.began, info=run.info,
        memory=sum(size for _, size in run.memory), predicted=run.predicted,
        plain=plain.tally if plain is not None else None, plain_run=run.plain_run,
        measured=run.measured(plain), lossless=run.lossless,
        disturbed=steady.brief if steady is not None and steady.disturbed else "",
    )  # fmt: skip
    return view if main is None else _with_pass(view, main)


def _with_pass(view: RunView, main: Pass) -> RunView:
    state = main.state
    return dataclasses.replace(
        view, title=state.title, share=state.share, prefill=state.prefill, tally=main.tally,
        history=tuple(main.history),
    )  # fmt: skip


def _texts(state: LiveState) -> LiveState:
    """A copy that goes on showing what is shown now."""
    kept = copy.copy(state)
    kept.rows = {
        index: RowState(copy.deepcopy(row.text), row.tokens, row.finish_reason, row.rejected)
        for index, row in state.shown_rows(SHOWN_ROWS)
    }
    return kept
