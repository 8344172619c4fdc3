"""Command options made from the knob table, and those every command has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import typer

from magicdec.cli.output.console import TERMINAL, ColorMode
from magicdec.cli.settings.knob import Knob
from magicdec.cli.settings.knobs import KNOBS

Command = Callable[..., int | None]


def with_settings(
    command: Callable[..., int | None],
    groups: Collection[str] | None = None,
    grids: Mapping[str, str] | None = None,
    refused: Collection[str] = (),
    worded: Collection[str] = (),
) -> Command:
    """Replaces the parameter `flags` of `command` by one option per knob, or per knob of `groups`.

    grids: knobs of which the command takes several values and reads them itself; to each its
    default, empty for the knob's own. refused: knobs that its help leaves out, because the command
    refuses them, in words that say who takes them. worded: grids that also take the words of their
    knobs.
    `flags` then holds what was given, by name. Values arrive as text: environment variables and
    files are checked by the same code, so a bad value reads the same wherever it comes from.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "flags"]
    knobs = [knob for knob in KNOBS if groups is None or knob.group in groups]
    several = grids or {}
    made = [
        _option(
            k, several.get(k.name), hidden=k.name in refused,
            words=k.name not in several or k.name in worded,
        )
        for k in knobs
    ]  # fmt: skip

    @functools.wraps(command)
    def wrapper(**given: Any) -> int | None:
        flags = {knob.name: given.pop(knob.name) for knob in knobs}
        return command(**given, flags=flags)

    return _resigned(wrapper, [*own, *made])


def with_common(
    command: Callable[..., int | None], silent: Collection[str] | None = ()
) -> Command:  # fmt: skip
    """Adds --color and --verbose, which hold for the whole process.

    silent: parameters of which any, if given, leaves stdout without a word, so that it may be
    closed; None: it always is. Else a command does no work whose result nobody could read.
    """
    signature = inspect.signature(command, eval_str=True)
    color = Annotated[
        ColorMode,
        typer.Option("--color", help="Colour the output; NO_COLOR and FORCE_COLOR count."),
    ]
    verbose = Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the traceback of an error.")
    ]
    common = [
        inspect.Parameter(
            "color", inspect.Parameter.KEYWORD_ONLY, default="auto", annotation=color
        ),
        inspect.Parameter(
            "verbose", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=verbose
        ),
    ]

    @functools.wraps(command)
    def wrapper(**given: Any) -> int | None:
        TERMINAL.color = given.pop("color")
        TERMINAL.verbose = given.pop("verbose")
        if silent is not None and not any(given.get(name) for name in silent):
            TERMINAL.require_output()
        try:
            return command(**given)
        except KeyboardInterrupt:  # which typer would make of an exit code alone
            raise typer.Abort from None

    return _resigned(wrapper, [*signature.parameters.values(), *common])


def _resigned(wrapper: Any, parameters: list[inspect.Parameter]) -> Command:
    ordered = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(ordered, return_annotation=int | None)
    wrapper.__annotations__ = {p.name: p.annotation for p in ordered}
    del wrapper.__wrapped__
    result: Command = wrapper
    return result


def _option(knob: Knob, grid: str | None, *, hidden: bool, words: bool) -> inspect.Parameter:
    if knob.kind == "bool":
        kind: Any = bool | None
        declared = typer.Option(
            f"{knob.flag}/--no-{knob.key}", help=knob.help, rich_help_panel=knob.group,
            show_default=False, hidden=hidden,
        )  # fmt: skip
    else:
        kind = list[str] | None if knob.kind in ("list", "ids", "map") else str | None
        declared = typer.Option(
            knob.flag, help=f"{knob.help}{knob.words_mean if words else ''}{_notes(knob, grid)}",
            metavar=_metavar(knob) if grid is None else "GRID",
            rich_help_panel=knob.group, show_default=False, hidden=hidden,
        )  # fmt: skip
    return inspect.Parameter(
        knob.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, declared],
    )


def _metavar(knob: Knob) -> str:
    names: Mapping[str, str] = {
        "int": "N", "float": "X", "str": "TEXT", "list": "TEXT", "ids": "ID", "map": "KEY=VALUE",
    }  # fmt: skip
    words = (f"FILE{w}" if w.startswith(".") else w for w in knob.words)
    return "|".join(knob.choices) or "|".join([names[knob.kind], *words])


def _notes(knob: Knob, grid: str | None) -> str:
    if grid:
        return f" [default: {grid}]"
    default = knob.unset if knob.default is None else knob.default
    if knob.kind in ("list", "ids", "map"):
        return ""
    if knob.kind == "float":
        default = f"{default:g}"
    return f" [default: {default}]"
