"""The app with a scripted engine: what keys do, what dialogs say, and that nothing hangs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from magicdec_scripted import (
    ENVIRONMENT,
    READY,
    SETTINGS,
    FakeClock,
    ScriptedLink,
    a_run,
    begin,
    drive,
    plain_events,
    screen_text,
    settle,
)
from textual.pilot import Pilot

from magicdec.cli.live_state import PLAIN
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.messages import (
    Failed,
    Gone,
    Happened,
    Loading,
    Open,
    PassBegan,
    RunEnded,
    Stop,
)
from magicdec.cli.tui.panels.curve import CurvePanel, measured_points
from magicdec.cli.tui.panels.runs import RunsPanel
from magicdec.cli.tui.screens.dialogs import LineDialog, MessageDialog
from magicdec.profiles.storage.reading import read_profile

Size = tuple[int, int]


def text(app: TuningApp) -> str:
    return "\n".join(screen_text(app))


def test_loading_shows_what_is_done_and_a_run_asked_for_meanwhile_begins(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        assert link.commands == [Open(("doc.txt",), SETTINGS)]
        link.tell(Loading("loading weights", 0.5))
        await pilot.pause(0.5)  # such reports are drawn a few times a second
        assert "loading weights" in text(app) and "50%" in text(app)
        await pilot.press("r")
        assert link.runs == []
        link.tell(READY)
        await settle(pilot)
        assert [run.settings for run in link.runs] == [SETTINGS]

    drive(app, steps)


def test_a_knob_moves_the_prediction_before_anything_runs(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        before = app.controller.forecast()
        assert before is not None and f"{before.speedup:.2f}×" in text(app)
        await pilot.press("left_square_bracket")
        after = app.controller.forecast()
        assert app.controller.settings.budget == 128
        assert after is not None and after.speedup > before.speedup
        assert f"{after.speedup:.2f}×" in text(app)
        assert link.runs == []

    drive(app, steps)


def test_tab_goes_through_the_knobs_and_digits_are_typed_into_one(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("tab")
        await pilot.press("enter", "5", "enter")
        assert app.controller.settings.gamma == 5
        await pilot.press("enter", "9", "9", "enter")
        await settle(pilot)
        assert app.controller.settings.gamma == 5
        assert "must be an integer in 0..32" in text(app)
        await pilot.press("enter", "7", "escape")
        assert app.controller.settings.gamma == 5
        await pilot.press("shift+tab", "shift+tab", "shift+tab", "right")
        assert app.controller.settings.batch == 4

    drive(app, steps)


def test_no_letter_is_a_command_while_a_value_is_typed(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("enter", "q", "r", "1", "escape")
        assert link.runs == [] and app.is_running
        await pilot.press("r")
        assert len(link.runs) == 1

    drive(app, steps)


def test_a_selector_is_chosen_from_a_list(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("tab", "tab", "enter")
        await settle(pilot)
        assert "streaming" in text(app)
        await pilot.press("down", "enter")
        assert app.controller.settings.selector == "streaming"

    drive(app, steps)


def test_the_mouse_steps_knobs_and_goes_to_panels(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        field = app.screen.query_one("#knob-gamma")
        await pilot.click("#knob-gamma", offset=(field.size.width - 1, 0))
        assert app.controller.settings.gamma == 4
        await pilot.click("#knob-gamma", offset=(2, 0))
        assert app.controller.settings.gamma == 3
        await pilot.click("PhasesPanel")
        panel = app.main.focused_panel()
        assert panel is not None and panel.key == "2"

    drive(app, steps)


def test_a_run_fills_the_panels_and_teaches_the_prediction(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        shown = text(app)
        assert "run 1 finished" in shown and "✓ identical" in shown
        view = app.main.view
        assert view is not None and view.shown is not None and view.shown.measured is not None
        assert f"{view.shown.measured.speedup:.2f}×" in shown
        forecast = app.controller.forecast()
        assert forecast is not None and forecast.acceptance == "acceptance of run 1"

    drive(app, steps)


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
        link.tell(begin(1, link.runs[0].settings), PassBegan(1, PLAIN))
        await pilot.press("x")
        assert link.commands[-1] == Stop(1)
        link.tell(RunEnded(1, "stopped"))
        await settle(pilot)
        assert app.controller.waiting == 0 and len(link.runs) == 1
        assert "run 1 stopped" in text(app)

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
        assert text(app).count("●") == 1 + 2  # one of the legend; the knob's diamond hides none

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
        assert "budget" in text(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, LineDialog)

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
        assert reason in " ".join(text(app).replace("│", " ").split())
        await pilot.press("escape", "r")
        assert len(link.runs) == 2

    drive(app, steps)


def test_a_bad_document_can_be_replaced(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(Failed("there is no file 'doc.txt'; give a text file"))
        await settle(pilot)
        assert "there is no file 'doc.txt'" in text(app)
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
        assert "SIGKILL" in text(app)
        await pilot.press("escape")
        assert "engine ended" in text(app)
        await pilot.press("r")
        assert link.starts == 2
        link.tell(READY)
        await pilot.press("r")
        assert len(link.runs) == 2

    drive(app, steps)


def test_a_paused_view_stands_still_while_the_run_goes_on(
    app: TuningApp, link: ScriptedLink, clock: FakeClock
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(begin(1), PassBegan(1, PLAIN))
        events = list(plain_events())
        link.tell(*(Happened(1, event) for event in events[:10]))
        await settle(pilot)
        await pilot.press("space")
        await settle(pilot)
        before = text(app)
        assert "view paused" in before
        link.tell(*(Happened(1, event) for event in events[10:20]))
        clock.seconds += 5
        await pilot.pause(0.5)
        assert text(app) == before
        run = app.controller.tuning.runs[1].main
        assert run is not None and run.tally.steps > 10
        await pilot.press("space")
        await settle(pilot)
        assert text(app) != before and "view paused" not in text(app)

    drive(app, steps)


def test_runs_are_compared_with_the_pinned_one_and_shown_when_chosen(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        await pilot.press("c", "right_square_bracket", "r")
        link.tell(*a_run(2, link.runs[1].settings, plain=False))
        await settle(pilot)
        assert app.controller.tuning.pinned == 1
        assert "vs run 1" in text(app)
        await pilot.press("5")
        await settle(pilot)
        assert "pinned" in text(app) and "+0.0%" in text(app)
        await pilot.press("up", "enter")
        await settle(pilot)
        assert app.controller.shown == 1 and "run 1 finished" in text(app)
        await pilot.press("s")
        await settle(pilot)
        assert "by B" in text(app)
        await pilot.press("c")
        assert app.controller.tuning.pinned is None

    drive(app, steps)


def test_a_click_on_a_heading_sorts(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        for number in (1, 2, 3):
            await pilot.press("r")
            link.tell(*a_run(number, link.runs[-1].settings, plain=number == 1))
            await settle(pilot)
            await pilot.press("right_square_bracket")
        await settle(pilot)
        panel = app.main.query_one(RunsPanel)
        await pilot.click("RunsPanel > DataTable", offset=(25, 0))
        await settle(pilot)
        first = panel.table.get_row_at(0)
        assert "budget" in str(panel.border_title) and first[4].plain.strip() == "1,024"

    drive(app, steps, size=(120, 40))


@pytest.mark.parametrize("key", "12345678")
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
def test_every_panel_has_a_key_a_maximum_and_help(
    app: TuningApp, link: ScriptedLink, key: str, size: Size
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        await pilot.press(key)
        await settle(pilot)
        panel = app.main.focused_panel()
        assert panel is not None and panel.key == key and panel.display
        before = panel.size
        if key != "4":
            await pilot.press("m")
            await settle(pilot)
            assert panel.size.height > before.height
            await pilot.press("m")
            await settle(pilot)
        await pilot.press("question_mark")
        await settle(pilot)
        assert isinstance(app.screen, MessageDialog)
        assert panel.about and panel.about[:20] in text(app)
        await pilot.press("escape")

    drive(app, steps, size)


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
        assert "exists" in text(app)
        path.value = str(tmp_path / "new.csv")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settle(pilot)
        assert "no run yet" in text(app)

    drive(app, steps)
    assert there.read_text() == "mine" and not (tmp_path / "new.csv").exists()


def test_it_survives_being_resized_while_a_run_goes_on(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(begin(1), PassBegan(1, PLAIN))
        for size, event in zip(
            [(200, 50), (59, 15), (80, 24), (20, 4), (120, 40), (60, 16), (1, 1)],
            plain_events(), strict=False,
        ):  # fmt: skip
            link.tell(Happened(1, event))
            await pilot.resize_terminal(*size)
            await settle(pilot)
            screen_text(app)
            if size[0] == 59:
                assert "speedup" not in text(app) and "measured" in text(app)

    drive(app, steps)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_quit_ends_the_app_in_every_phase(app: TuningApp, link: ScriptedLink, key: str) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press(key)
        await settle(pilot)
        assert not app.is_running

    drive(app, steps)
