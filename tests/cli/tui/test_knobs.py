"""Knobs by keys, typing and mouse, and the prediction that moves with them."""

from __future__ import annotations

import pytest
from magicdec_scripted import (
    READY,
    ScriptedLink,
    drive,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.settings.knobs import KNOBS
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.knobs import tui_knobs
from magicdec.engine.selection import SELECTORS

Size = tuple[int, int]


def test_a_knob_moves_the_prediction_before_anything_runs(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        before = app.controller.forecast()
        assert before is not None and f"{before.speedup:.2f}×" in text_of(app)
        await pilot.press("left_square_bracket")
        after = app.controller.forecast()
        assert app.controller.settings.budget == 128
        assert after is not None and after.speedup > before.speedup
        assert f"{after.speedup:.2f}×" in text_of(app)
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
        assert "must be an integer in 0..32" in text_of(app)
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
        app.screen.query_one("#knob-selector").focus()
        await pilot.press("enter")
        await settle(pilot)
        assert "streaming" in text_of(app)
        await pilot.press("down", "enter")
        assert app.controller.settings.selector == "streaming"

    drive(app, steps)


def test_who_drafts_is_a_knob_and_what_has_no_price_says_so(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        app.screen.query_one("#knob-draft").focus()
        await settle(pilot)
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert app.controller.settings.draft == "lookup"
        assert "no preview: costs are known of" in text_of(app)
        await pilot.press("enter", "tab", *"layers:20", "enter")
        await settle(pilot)
        assert app.controller.settings.draft == "layers:20"
        assert "acceptance unknown: press r" in text_of(app) and "▲" not in text_of(app)
        for cascade in ("layers:2+self", "tiny+self"):
            await pilot.press("enter", "tab", *cascade, "enter")
            await settle(pilot)
            assert app.controller.settings.draft == cascade
            assert "does not price cascades" in text_of(app)
        await pilot.press("enter", "tab", *"layers:20", "enter", "r")
        assert link.runs[-1].settings.draft == "layers:20"

    drive(app, steps)


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (120, 40), (200, 50)])
def test_every_knob_is_whole_at_every_size(
    app: TuningApp, link: ScriptedLink, width: int, height: int
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        for tree in (False, True):
            if tree:
                app.screen.query_one("#knob-tree").focus()
                await pilot.press("right_square_bracket")
                await settle(pilot)
            shown = text_of(app)
            for knob in tui_knobs():
                field = app.screen.query_one(f"#knob-{knob.name}")
                if knob.name == "tree_nodes" and not tree:
                    assert not field.display and "nodes" not in shown
                    continue
                assert field.region in app.screen.region, knob.name
                assert f"{knob.label} ◂" in shown, knob.name
            assert shown.splitlines()[-1].endswith("? help q quit")

    drive(app, steps, (width, height))


def test_a_setting_with_a_label_is_a_knob_without_another_line() -> None:
    assert {knob.name for knob in tui_knobs()} == {knob.name for knob in KNOBS if knob.label}
    selector = next(knob for knob in tui_knobs() if knob.name == "selector")
    assert list(selector.choices) == SELECTORS.names()


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
