"""The app with a scripted engine: loading, running, failing, leaving."""

from __future__ import annotations

import pytest
from magicdec_scripted import (
    READY,
    SETTINGS,
    ScriptedLink,
    a_run,
    begin,
    drive,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import Failed, Gone, Loading, Open, RunEnded
from magicdec.cli.tui.screens.dialogs import MessageDialog

Size = tuple[int, int]


def test_loading_shows_what_is_done_and_a_run_asked_for_meanwhile_begins(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        assert link.commands == [Open(("doc.txt",), SETTINGS)]
        link.tell(Loading("loading weights", 0.5))
        await pilot.pause(0.5)  # such reports are drawn a few times a second
        assert "loading weights" in text_of(app) and "50%" in text_of(app)
        await pilot.press("r")
        assert link.runs == []
        link.tell(READY)
        await settle(pilot)
        assert [run.settings for run in link.runs] == [SETTINGS]

    drive(app, steps)


def test_a_run_fills_the_panels_and_teaches_the_prediction(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        shown = text_of(app)
        assert "run 1 finished" in shown and "✓ identical" in shown
        view = app.main.view
        assert view is not None and view.shown is not None and view.shown.measured is not None
        assert f"{view.shown.measured.speedup:.2f}×" in shown
        forecast = app.controller.forecast()
        assert forecast is not None and forecast.acceptance == "acceptance of run 1"

    drive(app, steps)


def test_a_failed_run_opens_a_dialog_and_the_app_goes_on(
    app: TuningApp, link: ScriptedLink
) -> None:
    reason = "needs 40.0 GiB, 16.0 are free; batch 2 at context 4,000 fits"

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(RunEnded(1, "failed", reason))
        await settle(pilot)
        assert isinstance(app.screen, MessageDialog)
        assert reason in " ".join(text_of(app).replace("│", " ").split())
        await pilot.press("escape", "r")
        assert len(link.runs) == 2

    drive(app, steps)


def test_a_bad_document_can_be_replaced(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(Failed("there is no file 'doc.txt'; give a text file"))
        await settle(pilot)
        assert "there is no file 'doc.txt'" in text_of(app)
        await pilot.press("enter", "d")
        app.screen.query_one("Input").value = "a.txt b.txt"  # type: ignore[attr-defined]
        await pilot.press("enter")
        assert link.commands[-1] == Open(("a.txt", "b.txt"), SETTINGS)
        link.tell(READY)
        await pilot.press("r")
        assert len(link.runs) == 1

    drive(app, steps)


def test_an_engine_that_ends_is_told_of_and_started_again(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(begin(1), Gone("the engine's process ended (signal SIGKILL)"))
        await settle(pilot)
        assert "SIGKILL" in text_of(app)
        await pilot.press("escape")
        assert "engine ended" in text_of(app)
        await pilot.press("r")
        assert link.starts == 2
        link.tell(READY)
        await pilot.press("r")
        assert len(link.runs) == 2

    drive(app, steps)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_quit_ends_the_app_in_every_phase(app: TuningApp, link: ScriptedLink, key: str) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await settle(pilot)
        assert not app.is_running

    drive(app, steps)
