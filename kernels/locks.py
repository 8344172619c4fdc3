"""Locks between processes: who holds one is said, and nobody waits in silence or for ever.

A killed process leaves no lock behind: the system drops it with the process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_SLICE = 1.0  # seconds
_waited = [0.0]  # seconds, of this process

__all__ = ["Timeout", "held", "holder", "waited", "who"]


def waited() -> float:
    """Seconds that this process has waited for others: no work of its own, whatever it measures."""
    return _waited[0]


@contextmanager
def held(
    path: Path,
    *,
    doing: str,
    say: Callable[[str], None],
    patience: float,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Holds the lock `path`. While another process has it, `say` hears who, and what it does.

    doing: what a holder of this lock does, as in "is converting a model".
    patience: seconds to wait; 0 does not wait, and says nothing.
    progress: changes while the holder gets on. Then the patience starts anew.
    Raises Timeout.
    """
    lock, began = FileLock(path), time.monotonic()
    try:
        _acquire(lock, path, doing, say, patience, progress)
    finally:
        _waited[0] += time.monotonic() - began
    try:
        yield
    finally:
        lock.release()


def _acquire(
    lock: FileLock,
    path: Path,
    doing: str,
    say: Callable[[str], None],
    patience: float,
    progress: Callable[[], object],
) -> None:
    seen, since, wait, said = progress(), time.monotonic(), 0.0, ""
    while True:
        try:
            lock.acquire(timeout=wait)
            return
        except Timeout:
            if (now := progress()) != seen:
                seen, since = now, time.monotonic()
            left = since + patience - time.monotonic()
            if left <= 0:
                raise
            before, said = said, f"waiting for {who(path)}, which {doing}"
            if said != before:
                say(said)
            wait = min(left, _SLICE)


def who(path: Path) -> str:
    """The holder of a lock in words."""
    pid = holder(path)
    return "another process" if pid is None else f"process {pid}"


def holder(path: Path) -> int | None:
    """The process that holds the lock `path`, where the system tells: Linux does, of processes of
    the same container."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:  # "1: FLOCK  ADVISORY  WRITE 4711 fe:00:5472328 0 EOF"; "1: ->" waits
        words = line.split()
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == file and int(words[4]) > 0:
            return int(words[4])
    return None
