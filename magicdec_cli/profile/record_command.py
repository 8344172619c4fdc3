"""`magicdec profile record`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from magicdec.cli.interrupts import INTERRUPTED, before_exit, finished
from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.files import check_output, goes_on, unfinished
from magicdec.cli.settings.grids import GRAMMAR, SweepFile, read_grids, read_sweep_file
from magicdec.cli.settings.unused import refuse_unused
from magicdec.engine.errors import ConfigError, MagicdecError, require

REPEAT = 3
RECORD_GRIDS = dict.fromkeys(
    ("batch", "context", "draft", "draft_kv", "tree", "tree_nodes", "selector", "budget",
     "gamma", "temperature", "draft_weights"), "",
)  # fmt: skip
RECORD_WORDED = ("gamma",)
RECORD_EPILOG = (
    f"{GRAMMAR} Every combination is a cell, settings that a drafter has no use for left out: "
    "--draft lookup is one, whatever the budgets. A γ that changes is a cell by its name: --gamma "
    "2-4,adaptive,auto. Run the same command again to go on where it was "
    "interrupted; a failed cell is tried anew."
)


def record(
    docs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOC...", show_default=False,
            help="Text files, - for stdin, builtin:pydoc, or a generated task such as ruler:qa.",
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default=False, rich_help_panel="Sweep",
            help="The profile, JSON lines; continued if it is there.",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat", metavar="N", show_default=False, rich_help_panel="Sweep",
            help=f"Measurements of each cell, after a warm-up. [default: {REPEAT}]",
        ),
    ] = None,
    sweep: Annotated[
        Path | None,
        typer.Option(
            "--sweep", metavar="FILE", show_default=False, rich_help_panel="Sweep",
            help="A TOML file with all of this: documents, output, repeat, and settings by their "
            "names. Options given beside it win.",
        ),
    ] = None,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel="Sweep"),
    ] = False,
    flags: dict[str, Any],
) -> int | None:  # fmt: skip
    """Measure a grid of settings against plain decoding; each cell is kept as soon as it is done.

    Most settings take several values, see GRID below.
    """
    grid = tuple(RECORD_GRIDS)
    given = SweepFile() if sweep is None else read_sweep_file(sweep, grid, RECORD_WORDED)
    path = output or (Path(given.output) if given.output else None)
    if path is None:
        raise ConfigError("no file to record to; add -o profile.jsonl")
    times = repeat if repeat is not None else given.repeat or REPEAT
    require(1 <= times <= 1000, f"--repeat must be in 1..1000, got {times}")
    sources = tuple(docs or given.documents)
    check_output(path, inputs=sources if sweep is None else (*sources, sweep), continued=True)
    from magicdec.profiles.recorded.writer import check_continuable

    check_continuable(path)
    stated = {
        name: value if value not in (None, []) else given.flags.get(name)
        for name, value in flags.items()
    }
    grids = read_grids(stated, grid, RECORD_WORDED)
    refuse_unused(stated, grids.values, sources)

    from magicdec.cli.output.progress import choose_display
    from magicdec.cli.profile.record import RecordPlan, record_session

    plan = RecordPlan.of(grids, sources, path, times)
    for what in plan.left_out:
        TERMINAL.note(f"note: no cells of {what}")
    display = choose_display(quiet)
    before_exit(display.close)
    failed = 0

    def work() -> None:
        nonlocal failed
        failed = record_session(plan, display)

    try:
        ended = finished(work)
    except OSError as error:
        raise unfinished(path, error) from error
    finally:
        display.close()
    if not ended:
        TERMINAL.note(f"interrupted: {goes_on(path)}")
        return INTERRUPTED
    if failed:
        cells = "1 cell" if failed == 1 else f"{failed} cells"
        raise MagicdecError(f"{cells} failed; `magicdec profile show {path}` has why")
    return None
