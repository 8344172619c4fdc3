"""The small commands: listings, settings, terms, and what `doctor` found.

Each imports what it needs itself, so that none pays for the others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.tables import Cell, Format, print_listing
from magicdec.engine.draft_spec import LAYERS, LOOKUP, SELF, UNDER_SELF
from magicdec.engine.errors import require

if TYPE_CHECKING:
    from magicdec.engine.selectors.base import KVSelector


FormatOption = Annotated[Format, typer.Option("--format", help="How to write the listing.")]


def selectors(format: FormatOption = "table") -> None:
    """List the KV selectors with their options."""
    from magicdec.engine.plugins.registry import option_fields
    from magicdec.engine.selection import SELECTORS

    rows: list[list[Cell]] = []
    for name in SELECTORS.names():
        try:
            kind = SELECTORS.load(name)
        except Exception as error:  # someone else's plug-in must not hide the others
            rows.append([name, f"cannot be loaded: {type(error).__name__}: {error}", {}, []])
            continue
        doc = (kind.__doc__ or "").strip().partition("\n")[0]
        options: list[object] = [
            f"{option.name}: {_type_name(option.type)} = {_default(option)!r}"
            for option in option_fields(kind)
        ]
        rows.append([name, doc, _search(kind), options])
    print_listing(["name", "keeps", "search", "options"], rows, format)


def _search(kind: type[KVSelector]) -> dict[str, object]:
    """What its search reads per cached token, see `Search`; empty when it reads nothing."""
    try:
        parts = dataclasses.asdict(kind().search())
    except Exception:  # someone else's plug-in, or an option without a default
        return {}
    return {name: round(read, 4) for name, read in parts.items() if read}


def _type_name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _default(option: dataclasses.Field[object]) -> object:
    if option.default_factory is not dataclasses.MISSING:
        return option.default_factory()
    return None if option.default is dataclasses.MISSING else option.default


def terms(
    word: Annotated[
        str | None, typer.Argument(help="Only terms in which this appears.", show_default=False)
    ] = None,
    format: FormatOption = "table",
) -> None:
    """Define every number that is shown."""
    from magicdec.cli.output.terms import TERMS

    asked = (word or "").casefold()
    found = [[term, said] for term, said in TERMS.items() if asked in term.casefold()]
    # A definition may use the word where no term has it.
    found = found or [[t, said] for t, said in TERMS.items() if asked in said.casefold()]
    require(bool(found), f"no term has {word!r} in it; `magicdec terms` lists all")
    print_listing(["term", "definition"], found, format)


def config_show(format: FormatOption = "table") -> None:
    """Show each setting with the place its value comes from."""
    from magicdec.cli.settings.knobs import KNOBS
    from magicdec.cli.settings.resolve import config_files, resolve

    resolved = resolve()
    rows: list[list[Cell]] = []
    for knob in KNOBS:
        value = getattr(resolved.settings, knob.name)
        if knob.name == "gamma" and resolved.settings.gamma_policy != "fixed":
            value = resolved.settings.gamma_policy
        cell: Cell = list(value) if isinstance(value, tuple) else value
        if knob.kind == "map":
            cell = dict(value)
        elif value is None and format == "table":
            cell = f"({knob.unset})"
        rows.append([knob.key, cell, resolved.sources[knob.name], knob.env])
    print_listing(["key", "value", "source", "variable"], rows, format)
    if format == "table":
        for path in config_files():
            TERMINAL.note(f"{path}: {'read' if path.exists() else 'not there'}")


def models_list(format: FormatOption = "table") -> None:
    """List the models that have an alias."""
    from magicdec.cli.run.report import size_text
    from magicdec.cli.session_api import list_models

    columns = ["alias", "parameters", "licence", "on disk", "description", "source", "path"]
    exact = format in ("json", "csv")
    rows: list[list[Cell]] = []
    for model in list_models():
        path = str(model.cached) if model.cached else None
        count: Cell = model.parameters if exact else f"{model.parameters / 1e6:,.0f} M"
        size: Cell = model.bytes_on_disk if exact else size_text(model.bytes_on_disk)
        if not exact and not path:
            size = "not pulled"
        rows.append(
            [model.alias, count, model.licence, size, model.description, model.source, path]
        )
    if format == "table":  # what fits 80 columns
        columns, rows = columns[:5], [row[:5] for row in rows]
    print_listing(columns, rows, format)


def models_pull(
    alias: Annotated[
        str, typer.Argument(metavar="ALIAS", help="A name of `magicdec models list`.")
    ],
) -> int | None:
    """Fetch a model into the cache and print where it lies."""
    from magicdec.cli.interrupts import INTERRUPTED, before_exit, finished
    from magicdec.cli.output.progress import choose_display
    from magicdec.cli.session_api import list_models, pull_model

    display = choose_display(quiet=False)
    before_exit(display.close)
    path: Path | None = None

    def work() -> None:
        nonlocal path
        path = pull_model(alias, display.loading)

    try:
        ended = finished(work)
    finally:
        display.close()
    if not ended:  # perhaps when all was there
        path = next((model.cached for model in list_models() if model.alias == alias), None)
    if path is not None:
        print(path)
    if ended:
        return None
    kept = "nothing is kept; the same command begins anew" if path is None else "it is complete"
    TERMINAL.note(f"interrupted: {kept}")
    return INTERRUPTED


def cache_list(format: FormatOption = "table") -> None:
    """List stored prefills, converted models and compiled kernels with what they take on disk."""
    from datetime import datetime

    from magicdec.cli.run.report import size_text
    from magicdec.engine.cache.listing import list_kept

    exact = format in ("json", "csv")
    rows: list[list[Cell]] = []
    for kept in list_kept():
        size: Cell = kept.bytes if exact else size_text(kept.bytes)
        used = datetime.fromtimestamp(kept.used).isoformat(" ", "minutes") if kept.used else None
        rows.append([kept.kind, kept.name, size, used, kept.details, str(kept.path)])
    columns = ["kind", "name", "size", "last used", "details", "path"]
    if format == "table":  # what fits 80 columns
        columns, rows = columns[:5], [row[:5] for row in rows]
    print_listing(columns, rows, format)


def cache_clear(
    prefills: Annotated[
        bool, typer.Option("--prefills", help="Stored prefills; without a flag, too.")
    ] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Compiled kernels; without a flag, too.")
    ] = False,
    models: Annotated[
        bool,
        typer.Option("--models", help="Converted models; the next use makes them again."),
    ] = False,
) -> None:
    """Delete stored prefills and compiled kernels; with flags, what they name."""
    from magicdec.cli.run.report import size_text
    from magicdec.engine.cache.listing import clear_kernels, clear_models, clear_prefills

    default = not (prefills or kernels or models)
    if prefills or default:
        print(f"prefills: {size_text(clear_prefills())} freed")
    if kernels or default:
        print(f"kernels: {size_text(clear_kernels())} freed")
    if models:
        print(f"models: {size_text(clear_models())} freed")


def doctor(format: FormatOption = "table") -> None:
    """Show what a run would use on this machine."""
    from magicdec.cli.doctor import findings

    print_listing(["what", "value"], [[name, value] for name, value in findings()], format)


OF_A_MODEL = "--draft-kv, --selector, --budget, --draft-weights"


@dataclass(frozen=True, slots=True)
class Way:
    """`lossless`: whether the output is the target's; `takes`: the settings it has use for."""

    name: str  # of --draft
    drafts: str
    needs: str
    lossless: str
    takes: str


ONCE = "a selector that chooses once"
LOSSLESS = "yes"  # whoever drafts, the target verifies: greedy tokens equal, sampling exact
WAYS = (
    Way(SELF, "the model itself, over what the selector keeps of its KV cache", "nothing",
        LOSSLESS, OF_A_MODEL),
    Way(LOOKUP, "what followed the same 2 to 5 tokens earlier in the row's own text",
        "text that repeats itself or the document", LOSSLESS, "--gamma alone"),
    Way(f"{LAYERS}N", "the model's first N layers and its head, an early exit",
        "fewer layers than the model has", LOSSLESS, OF_A_MODEL),
    Way(f"{LOOKUP}{UNDER_SELF}", "a cascade: lookup drafts for the self-draft", ONCE,
        LOSSLESS, OF_A_MODEL),
    Way(f"{LAYERS}N{UNDER_SELF}", "a cascade: layers:N drafts for the self-draft",
        f"{ONCE}, fewer layers than the model has", LOSSLESS, OF_A_MODEL),
    Way("MODEL", "another model, with a KV cache of its own; full is standard speculative decoding",
        "the same vocabulary, memory for its weights and cache", LOSSLESS, OF_A_MODEL),
    Way(f"MODEL{UNDER_SELF}", "a cascade: another model drafts for the self-draft, over what the "
        "same selector and budget keep of a KV cache of its own",
        f"{ONCE}, the same vocabulary, memory for its weights and cache", LOSSLESS, OF_A_MODEL),
)  # fmt: skip


def drafters(format: FormatOption = "table") -> None:
    """List who can draft (--draft), with what each needs."""
    rows: list[list[Cell]] = [list(astuple(way)) for way in WAYS]
    print_listing([field.name for field in fields(Way)], rows, format)
