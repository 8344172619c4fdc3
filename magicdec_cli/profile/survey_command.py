"""`magicdec profile survey`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magicdec.cli.interrupts import INTERRUPTED, before_exit, finished
from magicdec.cli.listings import FormatOption
from magicdec.cli.output.console import TERMINAL
from magicdec.cli.settings.grid_size import refuse_large
from magicdec.cli.settings.grids import GRAMMAR, drafters, read_grids, refuse_cascades
from magicdec.cli.settings.unused import refuse_unused
from magicdec.engine.errors import ConfigError

GAMMAS = "1-8"
SURVEY_GRIDS = {"draft": "", "draft_kv": "", "selector": "", "budget": "", "gamma": GAMMAS}
SURVEY_EPILOG = (
    f"{GRAMMAR} One survey of all selectors and budgets costs about as much as a few runs; it "
    "measures acceptance, not time."
)


def survey(
    docs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOC...",
            help="Text files, - for stdin, builtin:pydoc, or a generated task such as ruler:qa.",
            show_default=False,
        ),
    ] = None,
    *,
    format: FormatOption = "table",
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel="Output"),
    ] = False,
    flags: dict[str, Any],
) -> int | None:
    """Measure the acceptance of many drafters from one run, for every draft length.

    --draft, --draft-kv, --selector, --budget and --gamma take several values.
    """
    grids = read_grids({**flags, "gamma": flags["gamma"] or GAMMAS}, tuple(SURVEY_GRIDS))
    refuse_cascades(grids.values("draft"))
    refuse_unused(flags, grids.values, docs or [])
    settings = grids.settings
    gammas = tuple(gamma for gamma in grids.values("gamma") if gamma)
    if not gammas:
        raise ConfigError("--gamma 0 drafts nothing to survey; give 1 or more")
    config = settings.decode_config()

    from magicdec.cli.output.progress import choose_display
    from magicdec.cli.profile.survey import SurveyOutcome, deliver, survey_session

    axes = {name: len(grids.values(name)) for name in ("draft", "draft_kv", "selector", "budget")}
    refuse_large(axes | {"gamma": len(gammas)})
    wanted = drafters(
        grids.values("selector"), grids.values("budget"), settings.selector_option,
        grids.values("draft"), grids.values("draft_kv"),
    )  # fmt: skip
    outcome = SurveyOutcome(settings, config, wanted, gammas)
    display = choose_display(quiet)
    before_exit(display.close)
    try:
        if not finished(lambda: survey_session(outcome, docs or [], display)):
            outcome.interrupted = True
    finally:
        display.close()
    if outcome.error is not None and not outcome.results:
        raise outcome.error
    for warning in outcome.warnings:
        TERMINAL.note(f"warning: {warning}")
    if outcome.results or not outcome.interrupted:
        deliver(outcome, format)
    if outcome.interrupted:
        kept = "the finished drafters are above" if outcome.results else "nothing was finished"
        TERMINAL.note(f"interrupted: {kept}")
        return INTERRUPTED
    if outcome.error is not None:
        raise outcome.error
    return None
