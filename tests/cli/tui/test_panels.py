"""Panels: shown, maximised, paused, sorted, compared, resized."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from magicdec_scripted import (
    READY,
    FakeClock,
    ScriptedLink,
    a_run,
    begin,
    drive,
    plain_events,
    screen_text,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.output.live_state import PLAIN
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.panels.runs import RunsPanel
from magicdec.cli.tui.process.messages import Happened, PassBegan, TuneEnded
from magicdec.cli.tui.screens.dialogs import MessageDialog
from magicdec.cli.tui.screens.export import export_to
from magicdec.cli.tui.session_log import recorded_run
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json

Size = tuple[int, int]


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
        before = text_of(app)
        assert "view paused" in before
        link.tell(*(Happened(1, event) for event in events[10:20]))
        clock.seconds += 5
        await pilot.pause(0.5)
        assert text_of(app) == before
        run = app.controller.tuning.runs[1].main
        assert run is not None and run.tally.steps > 10
        await pilot.press("space")
        await settle(pilot)
        assert text_of(app) != before and "view paused" not in text_of(app)

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
        assert "vs run 1" in text_of(app)
        await pilot.press("5")
        await settle(pilot)
        assert "pinned" in text_of(app) and "+0.0%" in text_of(app)
        await pilot.press("up", "enter")
        await settle(pilot)
        assert app.controller.shown == 1 and "run 1 finished" in text_of(app)
        await pilot.press("s")
        await settle(pilot)
        assert "by B" in text_of(app)
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
        assert panel.about and panel.about[:20] in text_of(app)
        await pilot.press("escape")

    drive(app, steps, size)


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
                assert "speedup" not in text_of(app) and "measured" in text_of(app)

    drive(app, steps)


def test_the_phases_add_up_to_the_step_and_the_break_even_to_the_speedup(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        text = text_of(app)
        parts = [
            float(ms)
            for ms in re.findall(r"(?:select|draft|verify|commit|other) .* ([\d.]+) +\d+%", text)
        ]
        assert len(parts) == 5
        (step,) = re.findall(r"step ([\d.]+)   plain", text)
        assert sum(parts) == pytest.approx(float(step), abs=0.08)
        (speedup,) = re.findall(r"measured .* ([\d.]+)×", text)
        (even, now) = re.findall(r"break-even length ([\d.]+), now ([\d.]+)", text)[0]
        assert float(now) / float(even) == pytest.approx(float(speedup), rel=0.01)

    drive(app, steps, (120, 40))


def test_what_the_tuner_ran_is_counted_where_runs_are_and_named_in_an_export(
    app: TuningApp, link: ScriptedLink, tmp_path: Path
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        tuning = app.controller.tuning
        profile = recorded_run(tuning.runs[1], tuning)
        assert profile is not None
        lines = [header_to_json(profile.header), *map(cell_to_json, profile.cells * 2)]
        tuning.apply(TuneEnded(-1, "finished", profile=tuple(map(json.dumps, lines))))
        app.main.refresh_view()
        await pilot.press("5")
        await settle(pilot)
        assert "+ 2 of the tuner" in text_of(app)
        said = export_to(str(tmp_path / "out.csv"), tuning, str)
        assert said.startswith("1 run and 2 settings of the tuner in ")

    drive(app, steps)
