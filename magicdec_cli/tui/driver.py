"""Textual's driver for terminals, made to outlive what terminals do."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from magicdec.cli.interrupts import INTERRUPTED

if TYPE_CHECKING:
    from textual.driver import Driver


def terminal_driver() -> type[Driver] | None:
    """None where textual's own has to do."""
    if sys.platform == "win32":
        return None
    from textual.drivers import linux_driver

    def lenient(name: str) -> Callable[..., codecs.IncrementalDecoder]:
        return partial(codecs.getincrementaldecoder(name), errors="ignore")

    # A byte that is not UTF-8 is no key. Textual's decoder is strict, which ends the app, and this
    # is the only place where it can be had otherwise.
    linux_driver.getincrementaldecoder = lenient  # type: ignore[assignment,attr-defined]

    class TerminalDriver(linux_driver.LinuxDriver):
        """A terminal that has gone takes what is written, and leaves the app."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._file: Any = _Sink(self._file)

        def run_input_thread(self) -> None:
            try:
                super().run_input_thread()
            except OSError:
                self._app.call_later(partial(self._app.exit, return_code=INTERRUPTED))

    return TerminalDriver


class _Sink:
    """A stream whose writes cannot fail: textual's writer would end, and the app wait for it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()
