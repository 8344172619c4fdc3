"""`magicdec profile show`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.text import Text

from magicdec.cli.bars import counted
from magicdec.cli.console import TERMINAL, symbols
from magicdec.cli.output_file import check_output, written
from magicdec.cli.profile_cells import cell_table
from magicdec.cli.profile_panels import (
    acceptance_curve,
    best_table,
    forecast_panel,
    phase_bars,
    position_bars,
    step_table,
)
from magicdec.cli.tables import Format, print_json, print_listing
from magicdec.profiles.export.notes import header_notes
from magicdec.profiles.storage.encoding import cell_to_json, header_to_json
from magicdec.profiles.storage.flat import flat_table
from magicdec.profiles.storage.reading import read_profile
from magicdec.profiles.storage.schema import CellKey, Profile

SVG_WIDTH, PANEL_WIDTH = 120, 100


def run_show(path: str, format: Format, svg: Path | None) -> None:
    if svg is not None:
        check_output(svg, "--svg", inputs=[path])
    profile = read_profile(path)
    for warning in profile.warnings:
        TERMINAL.note(f"warning: {warning}")
    if svg is not None:
        _save(profile, svg)
    if format == "json":
        document = header_to_json(profile.header)
        print_json(document | {"cells": [cell_to_json(cell) for cell in profile.cells]})
    elif format == "table":
        print_profile(TERMINAL.out, profile)
    elif profile.cells:
        print_listing(*flat_table(profile.cells, sparse=format == "csv"), format)


def print_profile(console: Console, profile: Profile) -> None:
    for part in _parts(console, profile):
        console.print(part)
        console.print()


def _parts(console: Console, profile: Profile) -> Iterator[RenderableType]:
    look, width = symbols(console), min(console.width, PANEL_WIDTH)
    done, failed = len(profile.finished), len(profile.cells) - len(profile.finished)
    total = counted(done, "cell") + (f", {failed:,} failed" if failed else "")
    drafts = sorted({_drafts(cell.key) for cell in profile.cells})
    lines = [*header_notes(profile.header), *(f"drafts: {text}" for text in drafts)]
    yield Group(*map(Text, lines), Text(total, "bold"))
    if not profile.cells:
        return
    yield Group(*cell_table(profile, console.width, look))
    panels: Iterable[list[Text] | None] = (
        best_table(profile, width, look),
        acceptance_curve(profile, width, look),
        position_bars(profile, width, look),
        phase_bars(profile, width, look),
        step_table(profile, look),
        forecast_panel(profile, width, look),
    )
    for panel in panels:
        if panel:
            yield Group(*panel)


def _drafts(key: CellKey) -> str:
    """What the cells' table has no column for."""
    options = "".join(f", {name}={value}" for name, value in key.selector_options)
    drawn = f"temperature {key.temperature:g}" if key.temperature else "greedy"
    return f"{drawn}, {key.draft_weights} weights{options}"


def _save(profile: Profile, path: Path) -> None:
    console = Console(
        width=SVG_WIDTH, record=True, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False,
    )  # fmt: skip
    print_profile(console, profile)
    with written(path) as file:
        file.write(console.export_svg(title="magicdec profile show"))
    TERMINAL.note(f"wrote {path}")
