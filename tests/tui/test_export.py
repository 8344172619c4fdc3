"""Runs as profiles and tables, the screen as a picture."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from magicdec_scripted import (
    ENVIRONMENT,
    READY,
    ScriptedLink,
    a_run,
    drive,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.tui.app import TuningApp
from magicdec.profiles.storage.reading import read_profile

Size = tuple[int, int]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".svg"])
def test_export_writes_runs_and_pictures(
    app: TuningApp, link: ScriptedLink, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / f"out{ending}"

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        await pilot.press("e")
        app.screen.query_one("Input").value = str(target)  # type: ignore[attr-defined]
        app.screen.query_one("Input").focus()
        await pilot.press("enter")
        await settle(pilot)
        assert target.exists()

    drive(app, steps)
    if ending == ".svg":
        assert target.read_text().startswith("<svg") and "acceptance" in target.read_text()
    elif ending == ".csv":
        (row,) = csv.DictReader(target.open())
        assert (row["gamma"], row["budget"], row["lossless"]) == ("3", "256", "identical")
    else:
        profile = read_profile(target)
        assert profile.header.model == ENVIRONMENT["model"] and len(profile.cells) == 1


def test_an_export_overwrites_nothing_and_needs_a_run(
    app: TuningApp, link: ScriptedLink, tmp_path: Path
) -> None:
    there = tmp_path / "there.svg"
    there.write_text("mine")

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("e")
        path = app.screen.query_one("Input")
        path.value = str(there)  # type: ignore[attr-defined]
        path.focus()
        await pilot.press("enter")
        await settle(pilot)
        assert "exists" in text_of(app)
        path.value = str(tmp_path / "new.csv")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settle(pilot)
        assert "no run yet" in text_of(app)

    drive(app, steps)
    assert there.read_text() == "mine" and not (tmp_path / "new.csv").exists()
