"""`magicdec calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.files import check_output, goes_on, unfinished
from magicdec.cli.settings.unused import refuse_idle
from magicdec.engine.errors import MagicdecError

GROUPS = ("Model",)  # of the knobs: the rest does not change what a pass takes


def calibrate(
    doc: Annotated[
        str, typer.Argument(metavar="DOC", help="A long text file, or builtin:pydoc.")
    ] = "builtin:pydoc",
    *,
    show: Annotated[
        bool,
        typer.Option("--show", help="Print the stored calibration; measure nothing."),
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check", metavar="FILE.jsonl", show_default=False,
            help="Measure speedups that the fit has not seen, beside their predictions, and append "
            "them to a file; what it holds already is not measured again.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the calibration as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    flags: dict[str, Any],
) -> int | None:  # fmt: skip
    """Measure this machine with a model, so that runs can be predicted; about two minutes.

    Times real steps over a small grid of batches, contexts, draft lengths and budgets, fits the
    cost model's constants to them, prints what the fit misses, and stores it for this model,
    precision, device, number of threads and version. `run` and `predict` then use it.
    """
    from magicdec.cli.settings.resolve import resolve

    settings = resolve(flags).settings
    from magicdec.cli import calibrate_session

    if show:
        refuse_idle({"--check": check}, "with --show, which measures nothing")
        return calibrate_session.show(settings, flags.get("model") is not None, json)
    if check is not None:
        refuse_idle({"--json": json}, "with --check, whose file is JSON lines")
        check_output(check, "--check", inputs=[doc], continued=True)
    from magicdec.cli.interrupts import INTERRUPTED, before_exit, finished, hold
    from magicdec.cli.output.progress import choose_display

    display = choose_display(quiet)
    before_exit(display.close)
    found = None

    def work() -> None:
        nonlocal found
        if check is not None:
            calibrate_session.check(settings, doc, check, display)
        else:
            found = calibrate_session.calibrate(settings, doc, display.loading, measured=hold)

    try:
        ended = finished(work)
    except OSError as error:
        if check is None:
            raise
        raise unfinished(check, error) from error
    finally:
        display.close()
    if not ended:
        kept = "nothing was stored; it is all measured anew" if check is None else goes_on(check)
        TERMINAL.note(f"interrupted: {kept}")
        return INTERRUPTED
    if found is None:
        return None
    calibrate_session.report(found, json)
    if found.path is None:
        raise MagicdecError(f"not stored: {found.problem}; the calibration is above")
    TERMINAL.note(f"stored in {found.path}")
    return None
