"""stdout is data, stderr is everything else; colour and symbols follow the terminal's abilities."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TextIO

from magicdec.engine.errors import MagicdecError
from magicdec.engine.untrusted import plain_words

if TYPE_CHECKING:
    from rich.console import Console

ColorMode = Literal["auto", "always", "never"]
SIZES = ("COLUMNS", "LINES")


class ClosedOutput(io.TextIOBase):
    """Stands for a standard output that the caller has closed: all is well until it is needed."""

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "it is closed")


@dataclass(slots=True)
class Terminal:
    """How this process may print; set once by the command line's common options."""

    color: ColorMode = "auto"
    verbose: bool = False
    told: str = ""  # the last note
    _consoles: dict[str, Console] = field(default_factory=dict)

    def reset(self) -> None:
        """Back to the defaults, with the streams as they are now."""
        self.color, self.verbose, self.told = "auto", False, ""
        self._consoles.clear()

    @property
    def out(self) -> Console:
        return self._console("stdout")

    @property
    def err(self) -> Console:
        return self._console("stderr")

    def _console(self, name: Literal["stdout", "stderr"]) -> Console:
        if name not in self._consoles:
            self._consoles[name] = make_console(getattr(sys, name), self.color)
        return self._consoles[name]

    def require_output(self) -> None:
        """Before any work whose result goes to stdout. Raises OSError where that is closed."""
        if isinstance(sys.stdout, ClosedOutput):
            sys.stdout.write("")

    def note(self, message: str) -> None:
        """One line on stderr. Plain, so that errors need no rich."""
        self.told = message
        with contextlib.suppress(OSError):  # nobody listens; that must not cost the data
            print(printable(message), file=sys.stderr, flush=True)


def make_console(stream: TextIO, color: ColorMode) -> Console:
    """NO_COLOR and FORCE_COLOR count unless --color says otherwise."""
    from rich.console import Console

    # 0 is unset to most programs; rich would print nothing into so little room.
    unset = {name for name in SIZES if not os.environ.get(name, "").strip("0")}
    sized = {name: value for name, value in os.environ.items() if name not in unset}
    wanted = {"always": True, "never": False}.get(color)
    if wanted is None and not os.environ.get("NO_COLOR") and os.environ.get("FORCE_COLOR"):
        wanted = True
    if wanted:
        # A pipe is still not a terminal: colour it, but neither move the cursor nor animate.
        depth: Literal["auto", "standard", "256", "truecolor"] = "256"
        if stream.isatty():
            depth = "truecolor" if "truecolor" in os.environ.get("COLORTERM", "") else "256"
        return Console(
            file=stream, force_terminal=True, force_interactive=None if stream.isatty() else False,
            color_system=depth, no_color=False, highlight=False, _environ=sized,
        )  # fmt: skip
    return Console(
        file=stream, force_terminal=stream.isatty(), no_color=True if wanted is False else None,
        highlight=False, _environ=sized,
    )  # fmt: skip


#: What stands in for characters that an encoding lacks; for others it is a question mark.
SPELLED = {
    "γ": "gamma", "α": "alpha", "Ω": "omega", "β": "beta", "Σ": "sum", "µ": "u", "μ": "u",
    "×": "x", "·": "-", "÷": "/", "±": "+-", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=",
    "→": "->", "…": "...", "≈": "~", "⊕": "+", "∞": "inf", "✓": "ok", "✗": "FAIL",
    "▲": "^", "▼": "v", "█": "#", "░": ".", "─": "-",
}  # fmt: skip


def _spell(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(SPELLED.get(character, "?") for character in lacking), error.end


def tolerate_narrow_encodings() -> None:
    """Prints names or `?` for what the terminal's encoding lacks instead of failing half-way."""
    codecs.register_error("magicdec", _spell)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="magicdec")


def spelled(text: str) -> str:
    """The text as stdout will show it, for what is to be laid out in columns or lines."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    codecs.register_error("magicdec", _spell)
    return text.encode(encoding, "magicdec").decode(encoding)


@dataclass(frozen=True, slots=True)
class Symbols:
    """The few non-ASCII characters the output uses, and what stands in for them."""

    gamma: str = "γ"
    dot: str = "·"
    times: str = "×"
    check: str = "✓"
    cross: str = "✗"
    tie: str = "≈"
    arrow: str = "→"
    full: str = "█"
    empty: str = "░"
    parts: str = " ▏▎▍▌▋▊▉"
    rule: str = "─"
    up: str = "▲"
    down: str = "▼"
    ellipsis: str = "…"
    overflow: Literal["ellipsis", "crop"] = "ellipsis"  # rich's ellipsis is not ASCII


ASCII = Symbols(
    gamma="gamma", dot="-", times="x", check="ok", cross="FAIL", tie="~", arrow="->", full="#",
    empty=".", parts=" ", rule="-", up="^", down="v",
    ellipsis="..", overflow="crop",
)  # fmt: skip


def symbols(console: Console) -> Symbols:
    return ASCII if console.options.ascii_only else Symbols()


def plain_text(line: str, look: Symbols) -> str:
    """The line in characters that the terminal has."""
    if look is ASCII:
        for symbol, name in SPELLED.items():
            line = line.replace(symbol, name)
    return line


def one_line(error: Exception) -> str:
    """The error as a message: ours say all themselves, others need the name of their class."""
    message = printable(" ".join(plain_words(error).split()))
    if isinstance(error, MagicdecError):
        return message
    return f"{type(error).__name__}: {message or 'no message'}"


def printable(text: str) -> str:
    """Model output that cannot move the cursor or change the terminal's state."""
    return "".join(
        c if c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) else "\ufffd" for c in text
    )


TERMINAL = Terminal()
