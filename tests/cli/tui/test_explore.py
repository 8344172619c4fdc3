"""A sweep of one knob: asked for, run, drawn, stopped."""

from __future__ import annotations

import pytest
from magicdec_scripted import (
    READY,
    ScriptedLink,
    a_run,
    begin,
    drive,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.output.live_state import PLAIN
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.panels.curve import CurvePanel, measured_points
from magicdec.cli.tui.process.messages import PassBegan, RunEnded, Stop
from magicdec.cli.tui.screens.dialogs import LineDialog

Size = tuple[int, int]


def test_stop_asks_for_this_run_and_a_sweep_ends_with_it(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("o")
        assert isinstance(app.screen, LineDialog)
        await pilot.press("tab")
        await pilot.press("enter")
        await settle(pilot)
        assert len(link.runs) == 1 and app.controller.waiting > 0
        total = app.controller.waiting + 1
        assert f"run 1 starting  1 of {total}" in text_of(app)
        link.tell(begin(1, link.runs[0].settings), PassBegan(1, PLAIN))
        await pilot.press("x")
        assert link.commands[-1] == Stop(1)
        link.tell(RunEnded(1, "stopped"))
        await settle(pilot)
        assert app.controller.waiting == 0 and len(link.runs) == 1
        assert "run 1 stopped" in text_of(app) and f"of {total}" not in text_of(app)
        await pilot.press("r")
        await settle(pilot)
        assert "run 2 starting" in text_of(app) and f"of {total}" not in text_of(app)

    drive(app, steps)


def test_a_sweep_puts_measured_points_on_the_curve(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("o")
        dialog = app.screen
        dialog.query_one("Input").value = "64,256"  # type: ignore[attr-defined]
        dialog.query_one("Input").focus()
        await pilot.press("enter")
        await settle(pilot)
        for number, budget in ((1, 64), (2, 256)):
            assert link.runs[-1].settings.budget == budget
            link.tell(*a_run(number, link.runs[-1].settings, plain=number == 1))
            await settle(pilot)
        curve = app.main.query_one(CurvePanel)
        assert curve.display and curve.curve is not None and app.main.view is not None
        points = measured_points(curve.curve, app.main.view, False)
        assert sorted(point.x for point in points) == [64, 256]
        assert curve.curve.values == (64, 256)
        assert text_of(app).count("●") == 1 + 2  # one of the legend; the knob's diamond hides none

    drive(app, steps)


@pytest.mark.parametrize("values", ["", "8,", "0", "1-x", "300-2"])
def test_a_sweep_that_cannot_be_says_why(app: TuningApp, link: ScriptedLink, values: str) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("o")
        app.screen.query_one("Input").value = values  # type: ignore[attr-defined]
        app.screen.query_one("Input").focus()
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, LineDialog) and link.runs == []
        assert "budget" in text_of(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, LineDialog)

    drive(app, steps)
