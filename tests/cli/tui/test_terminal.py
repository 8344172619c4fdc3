"""The app in a terminal of its own: what it cannot draw in, bytes that are no keys, signals."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0  # seconds
DRAWN = b"preview"  # is in a screen that is complete
RAISE = """
import sys
from magicdec.cli.tui.app import TuningApp
def fail(app, *given):
    raise ValueError("a mistake of ours")
TuningApp.help_on = fail
from magicdec.cli.entry import main
main()
"""


class InTerminal:
    """A process whose terminal is ours."""

    def __init__(
        self, *arguments: str, term: str = "xterm", size: tuple[int, int] = (24, 80),
        code: tuple[str, ...] = ("-m", "magicdec.cli"),
    ) -> None:  # fmt: skip
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        unset = {"COLUMNS", "LINES", "NO_COLOR"}
        environment = {k: v for k, v in os.environ.items() if k not in unset} | {"TERM": term}
        self.process = subprocess.Popen(
            [sys.executable, *code, *arguments], stdin=side, stdout=side, stderr=side,
            env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(side)
        self.said = b""

    def until(self, text: bytes) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self.said:
            assert time.monotonic() < end and self.read(), self.said[-2000:].decode()

    def read(self) -> bool:
        if select.select([self._main], [], [], 1)[0]:
            try:
                read = os.read(self._main, 1 << 16)
            except OSError:  # nobody is at the other end
                return False
            self.said += read
            return bool(read)
        return True

    def press(self, keys: bytes) -> None:
        os.write(self._main, keys)

    def end(self) -> tuple[int, str]:
        """The exit code, and all that was said."""
        while self.read():
            pass
        return self.process.wait(PATIENCE), self.said.decode(errors="replace")

    def hang_up(self) -> int:
        os.close(self._main)
        self._main = -1
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._main)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[InTerminal]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    found: list[InTerminal] = []
    yield found
    for each in found:
        each.close()


@pytest.mark.parametrize(
    ("term", "size", "said"),
    [
        ("dumb", (24, 80), "TERM=dumb is a terminal that nothing can be drawn in"),
        ("xterm", (0, 0), "the terminal says that it is 0 × 0"),
        ("xterm", (0, 80), "the terminal says that it is 80 × 0"),
    ],
)
def test_what_cannot_be_drawn_in_is_refused_in_one_line(
    started: list[InTerminal], term: str, size: tuple[int, int], said: str
) -> None:
    started.append(InTerminal("tui", "--demo", term=term, size=size))
    code, out = started[-1].end()
    assert code == 2 and len(out.splitlines()) == 1
    assert said in out and "use magicdec run" in out


def test_a_size_that_is_given_counts_where_the_window_has_none(
    started: list[InTerminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicdec.cli import tui_command

    main, side = pty.openpty()
    with os.fdopen(main), os.fdopen(side, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("COLUMNS", "90")
        monkeypatch.setenv("LINES", "0")
        assert tui_command._size() == (90, 0)
        monkeypatch.setenv("LINES", "30")
        assert tui_command._size() == (90, 30)


def test_bytes_that_are_not_utf_8_are_no_keys(started: list[InTerminal]) -> None:
    started.append(app := InTerminal("tui", "--demo"))
    app.until(DRAWN)
    app.press(b"\xff\xc3(\xe2\x80?")  # ? is a key after what was begun and not ended
    app.until(b"esc closes")
    app.press(b"\xfe\x03")
    code, out = app.end()
    assert code == 0 and "Error" not in out


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_the_app_in_order(started: list[InTerminal], sent: signal.Signals) -> None:
    started.append(app := InTerminal("tui", "--demo"))
    app.until(DRAWN)
    app.process.send_signal(sent)
    app.process.send_signal(sent)
    code, out = app.end()
    assert code == 130 and "Traceback" not in out and "Task" not in out
    assert out.rindex("\x1b[?1049l") > out.rindex("preview"), "the screen is given back"


def test_a_hang_up_ends_the_app_and_its_engine(
    started: list[InTerminal], checkpoint: Path, tmp_path: Path
) -> None:
    import psutil

    document = tmp_path / "doc.txt"
    document.write_text("All the world is a stage, and all the men and women merely players. " * 30)
    started.append(app := InTerminal("tui", str(document), "--model", str(checkpoint)))
    app.until(DRAWN)
    process, end = psutil.Process(app.process.pid), time.monotonic() + PATIENCE
    while not (engine := process.children()):
        assert time.monotonic() < end and app.read()
    assert app.hang_up() == 130
    assert not psutil.wait_procs(engine, timeout=PATIENCE)[1]


def test_a_terminal_that_takes_nothing_does_not_hold_the_app(started: list[InTerminal]) -> None:
    """Its buffer holds less than a screen, and nobody reads."""
    started.append(app := InTerminal("tui", "--demo"))
    app.until(b"\x1b[?1049h")
    app.process.send_signal(signal.SIGTERM)
    assert app.process.wait(PATIENCE) == 130


def test_a_mistake_of_ours_is_exit_code_1(started: list[InTerminal]) -> None:
    started.append(app := InTerminal("tui", "--demo", code=("-c", RAISE)))
    app.until(DRAWN)
    app.press(b"?")
    code, out = app.end()
    assert code == 1 and "a mistake of ours" in out
