"""The way to an engine: a process of its own, or something that stands in for one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import IO, Protocol

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.process.messages import Command, Gone, Report
from magicdec.cli.tui.process.wire import decode, encode

Listener = Callable[[Report], None]
WORKER = (sys.executable, "-m", "magicdec.cli.tui.process.worker")
GRACE = 0.7  # seconds that a process gets for each way of ending it


class Link(Protocol):
    def start(self, listener: Listener) -> None:
        """Begins; the listener is called from another thread. Once more after Gone: anew."""

    def send(self, command: Command) -> None:
        """Returns at once. What cannot arrive is lost: Gone tells."""

    def bound(self, settings: Settings) -> Settings | None:
        """What the next run will have for these settings; None: just these."""

    def close(self) -> None:
        """Ends the engine whatever it is doing, within two seconds."""


class ProcessLink:
    """An engine's process, which speaks through its standard streams."""

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def start(self, listener: Listener) -> None:
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 (for as long as the process lives)
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
            start_new_session=True,  # Ctrl-C and a hang-up are the app's to handle
        )  # fmt: skip
        self._process = process
        reader = threading.Thread(
            target=self._read, args=(process, complaints, listener), daemon=True
        )
        reader.start()

    def send(self, command: Command) -> None:
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the reader reports that it has gone
            self._process.stdin.write(encode(command))
            self._process.stdin.flush()

    def bound(self, settings: Settings) -> Settings | None:
        return None

    def close(self) -> None:
        self._closing = True
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        for end in (None, signal.SIGTERM, signal.SIGKILL):
            if end is not None:
                process.send_signal(end)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
                return

    def _read(
        self, process: subprocess.Popen[bytes], complaints: IO[bytes], listener: Listener
    ) -> None:
        assert process.stdout is not None
        with complaints:
            for line in process.stdout:
                listener(decode(line))
            code = process.wait()
            if not self._closing:
                listener(Gone(_why(code, complaints)))


def _why(code: int, complaints: IO[bytes]) -> str:
    """The last line that the process wrote, behind how it ended."""
    end = f"exit code {code}"
    if code < 0:
        end = f"signal {signal.Signals(-code).name}"
        if -code == signal.SIGKILL:
            end += ", which is how a system ends a process when memory is short"
    size = os.fstat(complaints.fileno()).st_size
    complaints.seek(max(size - 4000, 0))
    lines = complaints.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"the engine's process ended ({end})" + (f": {last}" if last else "")
