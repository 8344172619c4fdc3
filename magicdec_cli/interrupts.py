"""Ctrl-C while the program starts: one line and out, whatever is half imported.

An interrupt in the middle of `import torch` does not work: its C++ part swallows the exception or
leaves half a numpy behind. Until the imports are done there is nothing to keep, so the process
ends at once; from then on Ctrl-C is Python's KeyboardInterrupt, and what is finished is kept.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130  # the exit code
_restore_terminal: list[Callable[[], None]] = []


def exit_at_once() -> None:
    """From here on Ctrl-C ends the process. A shell that has it ignored is left alone."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def raise_again() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as Python does by itself."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def before_exit(restore: Callable[[], None]) -> None:
    """Has `restore` called before the process ends at once, as for a display that hides things."""
    _restore_terminal[:] = [restore]


def _exit(number: int, frame: FrameType | None) -> None:
    for restore in _restore_terminal:
        with contextlib.suppress(Exception):
            restore()
    with contextlib.suppress(Exception):  # a closed stderr
        print("interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
