"""Runs what others wrote, such as chat templates, within a time limit."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises. Raises TimeoutError, and stops it, after so many seconds.

    It can be stopped between two steps of Python, not inside a call of C.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:  # also when an interrupt ends the wait
        if thread.is_alive():
            stop = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), stop)
    if done:
        return done[0]
    if failed:
        raise failed[0]
    raise TimeoutError
