"""Ctrl-C, and SIGTERM as from a cluster's scheduler: what is finished is kept and shown.

An interrupt in the middle of `import torch` does not work: its C++ part swallows the exception or
leaves half a numpy behind. Until the imports are done there is nothing to keep, so the process
ends at once with one line; from then on both raise KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130  # the exit code
DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
_restore_terminal: list[Callable[[], None]] = []


def exit_at_once() -> None:
    """From here on either ends the process. A shell that has one ignored is left alone."""
    for number, default in DEFAULTS.items():
        if signal.getsignal(number) is default:
            signal.signal(number, _exit)


def raise_again() -> None:
    """From here on either raises KeyboardInterrupt, as Python does by itself for Ctrl-C."""
    for number in DEFAULTS:
        if signal.getsignal(number) is _exit:
            signal.signal(number, signal.default_int_handler)


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
