"""What a run shows while it goes on: nothing, a few lines, or the live display (live.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.live_state import LiveState, prefill_rate, prefill_seconds_left
from magicdec.cli.output.numbers import clock, counted, rate
from magicdec.engine.events import Event, PrefillProgress, RunFinished, StepFinished

QUIET_SECONDS = 10.0  # at most one progress line in this time


class Display(Protocol):
    """All methods return quickly; the loop waits for them."""

    def loading(self, what: str, share: float | None) -> None:
        """Something before the run: loading, converting, tokenising."""

    def note(self, line: str) -> None:
        """Something to know before the run, that stays."""

    def begin(self, state: LiveState) -> None:
        """A pass over the rows starts, or goes on after another one's turn; its events follow."""

    def event(self, event: Event) -> None:
        """`state` has already seen it."""

    def close(self) -> None:
        """Leaves the terminal as it was."""


class Silent:
    def loading(self, what: str, share: float | None) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def begin(self, state: LiveState) -> None:
        pass

    def event(self, event: Event) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """For logs and pipes: a line when something new begins, then one every ten seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()
        self._what = ""
        self._state: LiveState | None = None
        self._begun = set[str]()  # titles of passes

    def loading(self, what: str, share: float | None) -> None:
        if what != self._what:
            self._say(what)
        elif share is not None and self._due():
            self._say(f"{what}: {share:.0%}")
        self._what = what

    def note(self, line: str) -> None:
        self._say(line)

    def begin(self, state: LiveState) -> None:
        self._state = state
        if state.title not in self._begun:
            self._begun.add(state.title)
            self._say(
                f"{state.title}: {counted(state.info.rows, 'row')}, "
                f"{counted(state.info.context, 'token')} of context"
            )

    def event(self, event: Event) -> None:
        assert self._state is not None
        if isinstance(event, RunFinished):
            self._say(self._decoding(self._state))
        elif self._due():
            if isinstance(event, PrefillProgress):
                self._say(_prefill_line(event))
            elif isinstance(event, StepFinished):
                self._say(self._decoding(self._state))

    def close(self) -> None:
        pass

    def _due(self) -> bool:
        return self._now() - self._last >= QUIET_SECONDS

    def _say(self, line: str) -> None:
        self._last = self._now()
        TERMINAL.note(line)

    @staticmethod
    def _decoding(state: LiveState) -> str:
        tally = state.recorder.tally()
        facts = [f"{state.title}: {state.share:.0%}, {counted(state.tokens, 'token')}"]
        if tally.tokens_per_s:
            facts.append(f"{tally.tokens_per_s:.1f} tokens/s")
        if tally.acceptance_rate is not None:
            facts.append(f"acceptance {rate(tally.acceptance_rate)}")
        return ", ".join(facts)


def _prefill_line(progress: PrefillProgress) -> str:
    facts = [f"prefill: {progress.done:,} of {progress.total:,} tokens"]
    speed, left = prefill_rate(progress), prefill_seconds_left(progress)
    if speed is not None and left is not None:
        facts += [f"{speed:,.0f} tokens/s", f"at most {clock(left)} left"]
    return ", ".join(facts)


def choose_display(quiet: bool) -> Display:
    """The live display on a terminal, lines elsewhere."""
    if quiet:
        return Silent()
    if not TERMINAL.err.is_interactive:
        return Lines()
    from magicdec.cli.output.live import LiveDisplay

    return LiveDisplay(TERMINAL.err)
