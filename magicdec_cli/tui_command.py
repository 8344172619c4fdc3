"""`magicdec tui`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from magicdec.cli.output.console import SIZES, TERMINAL
from magicdec.engine.errors import ConfigError, require

INCAPABLE = ("dumb", "unknown")  # values of TERM
FIRST_CONTEXT = 1024  # tokens, unless the user says otherwise: a first run takes seconds


def tui(
    docs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOC...", help="Text files, or builtin:pydoc (default).", show_default=False
        ),
    ] = None,
    *,
    demo: Annotated[
        bool, typer.Option("--demo", help="Replay a recorded session; needs no model.")
    ] = False,
    ascii: Annotated[
        bool, typer.Option("--ascii", help="Draw with ASCII characters only.")
    ] = False,
    theme: Annotated[
        str | None,
        typer.Option(
            "--theme", metavar="NAME", show_default=False,
            help="Such as textual-dark, textual-light, ansi-dark or nord; ctrl+p lists all.",
        ),
    ] = None,
    flags: dict[str, Any],
) -> int:  # fmt: skip
    """Tune interactively: turn knobs, see predicted and measured speedup, compare runs.

    The options set where the knobs start. Press ? for help.
    """
    _check_terminal(docs or [])
    import dataclasses

    from magicdec.cli.settings.resolve import resolve
    from magicdec.cli.tui.knobs import POLICIES, possible

    resolved = resolve(flags)
    settings = resolved.settings
    require(
        settings.gamma_policy in ("fixed", *POLICIES),
        f"--gamma {settings.gamma_policy} is for `magicdec run`; give the app a number, "
        f"{' or '.join(POLICIES)}",
    )
    if resolved.sources["context"] == "default":
        settings = dataclasses.replace(settings, context=FIRST_CONTEXT)
    possible(settings)
    if TERMINAL.color == "never":
        os.environ["NO_COLOR"] = "1"

    # From here on imports cost tenths of seconds.
    from magicdec.cli.tui.launch import launch

    narrow = "utf" not in (sys.stderr.encoding or "").lower()
    return launch(
        docs or ["builtin:pydoc"], settings, demo=demo, ascii=ascii or narrow, theme=theme
    )


def _check_terminal(docs: list[str]) -> None:
    """Raises ConfigError where keys cannot be read or nothing can be drawn."""
    require("-" not in docs, "the app reads keys from standard input, not a document; give a file")
    for stream, name in ((sys.stdin, "standard input"), (sys.stderr, "standard error")):
        if stream is None or not stream.isatty():
            raise ConfigError(f"{name} is not a terminal; use magicdec run, or start it in one")
    term = os.environ.get("TERM", "")
    require(
        term not in INCAPABLE,
        f"TERM={term} is a terminal that nothing can be drawn in; use magicdec run, or set TERM to "
        "what yours is, such as xterm-256color",
    )
    columns, lines = _size()
    require(
        columns > 0 and lines > 0,
        f"the terminal says that it is {columns} × {lines}; use magicdec run, or give it a size: "
        "stty cols 80 rows 24",
    )


def _size() -> tuple[int, int]:
    """As textual takes it: COLUMNS and LINES where they are given, else the window's."""
    columns, lines = os.get_terminal_size(sys.stderr.fileno())
    given = [os.environ.get(name, "") for name in SIZES]
    columns, lines = (
        int(text) if text.isdecimal() and int(text) else size
        for text, size in zip(given, (columns, lines), strict=True)
    )
    return columns, lines
