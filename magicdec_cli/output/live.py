"""The live display on a terminal's stderr. It takes at most 2% of the time, whatever it costs."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from magicdec.cli.output.console import symbols
from magicdec.cli.output.live_layout import draw
from magicdec.cli.output.live_state import LiveState
from magicdec.cli.output.numbers import bar
from magicdec.engine.events import Event, RunFinished

LEAST_INTERVAL = 1 / 8  # seconds between frames
COST_SHARE = 0.02  # of the time may go into drawing


class LiveDisplay:
    """Draws inside the loop's own thread: no thread to contend with, none to leave behind."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._symbols = symbols(console)
        self._next = now()
        self._begun: dict[str, float] = {}  # by the title of a pass
        self._state: LiveState | None = None
        self._what = ""
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False,
            vertical_overflow="crop",
        )  # fmt: skip
        self._live.start()

    def loading(self, what: str, share: float | None) -> None:
        if what != self._what:  # it may be the only word for minutes
            self._what, self._next = what, self._now()
        line = Text(f"{what} ", no_wrap=True, overflow=self._symbols.overflow)
        if share is not None:
            line.append_text(bar(share, 24, "green", self._symbols)).append(f" {share:.0%}", "dim")
        self._frame(lambda: line)

    def note(self, line: str) -> None:
        self._live.console.print(Text(line, "dim"))

    def begin(self, state: LiveState) -> None:
        self._state = state
        if state.title not in self._begun:
            self._begun[state.title] = self._next = self._now()
        self._frame(self._draw)

    def event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._next = self._now()
        self._frame(self._draw)

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        assert self._state is not None
        width, height = self._console.size
        elapsed = self._now() - self._begun[self._state.title]
        # One line less: a frame that fills the screen would scroll it.
        return draw(self._state, elapsed, width, height - 1, self._symbols)

    def _frame(self, render: Callable[[], RenderableType]) -> None:
        start = self._now()
        if start < self._next:
            return
        self._live.update(render(), refresh=True)
        end = self._now()
        self._next = start + max(LEAST_INTERVAL, (end - start) / COST_SHARE)
