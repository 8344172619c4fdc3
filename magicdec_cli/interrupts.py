"""Ctrl-C, SIGTERM as from a cluster's scheduler, and a hang-up: what is finished is kept and shown.

An interrupt in the middle of `import torch` does not work: its C++ part swallows the exception or
leaves half a numpy behind. Until the imports are done there is nothing to keep, so the process
ends at once with one line. From then on the first signal raises KeyboardInterrupt, once: what
follows it is the farewell, in which results are delivered, and no further signal counts before
they are. A command that has ended its work holds signals off by itself (`hold`).
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

INTERRUPTED = 130  # the exit code
DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
if hasattr(signal, "SIGHUP"):  # a terminal that was closed
    DEFAULTS[signal.SIGHUP] = signal.SIG_DFL
RESCUE_SECONDS = 0.02  # until an interrupt that was swallowed comes again
THREADS_SECONDS = 1.0  # that a thread has to end by itself
_restore_terminal: list[Callable[[], None]] = []
_listener: list[Callable[[], None]] = []
_code: list[int] = []  # to leave with
_last: list[int] = []  # the signal that raised


def exit_at_once() -> None:
    """From here on each ends the process. A shell that has one ignored is left alone."""
    _last.clear()
    atexit.unregister(_ignore)
    atexit.register(_ignore)  # registered first, so the last of all
    for number, default in DEFAULTS.items():
        if signal.getsignal(number) is default:
            signal.signal(number, _exit)


def raise_again() -> None:
    """From here on the first one raises KeyboardInterrupt; see `hold` for those after it."""
    _answer(_interrupt)
    if _ours():
        sys.unraisablehook = _rescue


def tell(listener: Callable[[], None]) -> None:
    """From here on the first one has `listener` called; an event loop cannot be interrupted."""
    _listener[:] = [listener]
    _answer(_tell)


def hold() -> None:
    """From here on none does anything: results are delivered first.

    The last thing inside a block that an interrupt ends, so that there is no moment in between.
    """
    _answer(_nothing)


def leave(code: int) -> None:
    """From here on each ends the process at once: all is delivered, with this exit code."""
    _code[:] = [code]
    _answer(_end)
    if _threads_remain():  # a plug-in's, for one: Python would wait for them, for ever
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _threads_remain() -> bool:
    """Whether threads that Python waits for still work after a moment."""
    import threading

    until = time.monotonic() + THREADS_SECONDS
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.main_thread():
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                return True
    return False


def finished(work: Callable[[], None]) -> bool:
    """Whether `work` came to its end. Either way no further signal counts before the process ends:
    what comes next is to deliver."""
    try:
        work()
        hold()
    except KeyboardInterrupt:
        hold()
        return False
    return True


def came() -> bool:
    """Whether one has raised KeyboardInterrupt: libraries make other errors of it."""
    return bool(_last)


def end_within(seconds: float) -> None:
    """The process ends then, whatever still waits; everything worth keeping is on disk."""
    import threading

    end = threading.Timer(seconds, os._exit, (INTERRUPTED,))
    end.daemon = True
    end.start()


def before_exit(restore: Callable[[], None]) -> None:
    """Has `restore` called before the process ends at once, as for a display that hides things."""
    _restore_terminal[:] = [restore]


Handler = Callable[[int, FrameType | None], None]


def _ours() -> list[signal.Signals]:
    """Those that `exit_at_once` took, unless somebody else has since."""
    own: tuple[object, ...] = (_exit, _interrupt, _tell, _nothing, _end)
    return [number for number in DEFAULTS if signal.getsignal(number) in own]


def _answer(handler: Handler) -> None:
    for number in _ours():
        signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    hold()
    for restore in _restore_terminal:
        with contextlib.suppress(Exception):
            restore()
    with contextlib.suppress(Exception):  # a closed stderr
        print("interrupted", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    hold()
    _last[:] = [number]
    raise KeyboardInterrupt


def _tell(number: int, frame: FrameType | None) -> None:
    hold()
    for listener in _listener:
        listener()


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(*_code)


def _ignore() -> None:
    """Python gives signals back to the system before it is gone: one that comes then would end the
    process by itself, with no exit code of ours."""
    for number in _ours():
        signal.signal(number, signal.SIG_IGN)


def _nothing(number: int, frame: FrameType | None) -> None:
    pass


def _rescue(unraisable: sys.UnraisableHookArgs) -> None:
    """An interrupt inside a `__del__` or another callback of the interpreter's cannot be raised: it
    comes again when that is over."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    _answer(_interrupt)
    import threading

    again = threading.Timer(RESCUE_SECONDS, _thread.interrupt_main, _last)
    again.daemon = True
    again.start()
