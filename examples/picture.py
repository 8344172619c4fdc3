"""Makes the README's picture of the live display from a real run.

python examples/picture.py examples/live.svg [DOC]
"""

from __future__ import annotations

import io
import sys
import time

from rich.console import Console

from magicdec.cli.output.console import symbols
from magicdec.cli.output.live_layout import draw
from magicdec.cli.output.live_state import LiveState
from magicdec.cli.run.session import Outcome, run_session
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.events import Event

WIDTH, HEIGHT, STEP = 100, 24, 12  # the picture is taken at the speculative run's 12th step


class Camera:
    """A display that keeps one frame."""

    def __init__(self, path: str) -> None:
        self._path = path

    def loading(self, what: str, share: float | None) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def begin(self, state: LiveState) -> None:
        self._state, self._began = state, time.perf_counter()

    def event(self, event: Event) -> None:
        if self._state.title == "speculative" and getattr(event, "step", None) == STEP:
            seconds = time.perf_counter() - self._began
            console = Console(
                width=WIDTH, height=HEIGHT, record=True, file=io.StringIO(), force_terminal=True,
                color_system="truecolor", highlight=False,
            )  # fmt: skip
            console.print(draw(self._state, seconds, WIDTH, HEIGHT - 1, symbols(console)))
            console.save_svg(self._path, title="magicdec run --compare")

    def close(self) -> None:
        pass


if __name__ == "__main__":
    outcome = Outcome(Settings(batch=4, context=4000), compare=True)
    run_session(outcome, sys.argv[2:] or ["builtin:pydoc"], Camera(sys.argv[1]))
    if outcome.error is not None:
        raise outcome.error
