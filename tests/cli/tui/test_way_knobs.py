"""The knobs of trees, of cascades and of how γ is chosen, and what they rule out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from magicdec_scripted import READY, ScriptedLink, drive, settle, text_of
from textual.pilot import Pilot

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.knobs import draft_ways, tui_knobs

WIDE = (200, 50)  # a notice begins with a long line


def test_behind_the_numbers_of_gamma_come_its_policies(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        app.screen.query_one("#knob-gamma").focus()
        await settle(pilot)
        seen = []
        await pilot.press("enter", "1", "enter")
        for _ in range(4):
            await pilot.press("left_square_bracket")
            settings = app.controller.settings
            seen.append((settings.gamma_policy, settings.gamma))
        assert seen == [("fixed", 0), ("auto", 8), ("adaptive", 8), ("fixed", 32)]
        await pilot.press("right_square_bracket", "right_square_bracket")
        await settle(pilot)
        assert "γ ◂    auto▸" in text_of(app) and "does not price γ auto" in text_of(app)
        await pilot.press("right_square_bracket", "enter", *"adaptive", "enter")
        assert app.controller.settings.gamma_policy == "adaptive"
        await pilot.press("enter", "4", "enter", "r")
        assert (link.runs[-1].settings.gamma_policy, link.runs[-1].settings.gamma) == ("fixed", 4)

    drive(app, steps)


def test_a_tree_is_chosen_with_its_nodes(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        app.screen.query_one("#knob-tree").focus()
        await settle(pilot)
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert "measured only: the cost model does not price trees" in text_of(app)
        await pilot.press("tab", "left_square_bracket")
        assert app.main.chosen.name == "tree_nodes"
        await pilot.press("r")
        settings = link.runs[-1].settings
        assert (settings.tree, settings.tree_nodes) == ("specexec", 8)
        app.controller.choose(dataclasses.replace(settings, tree="none"))  # as the tuner does
        app.main.refresh_knobs()
        await pilot.press("right_square_bracket", "tab")
        assert app.controller.settings.tree_nodes == 8

    drive(app, steps)


@pytest.mark.parametrize(
    ("knob", "way", "said"),
    [
        ("tree", {"draft": "lookup"}, "a tree is drafted by the model itself"),
        ("tree", {"draft": "some/model"}, "a tree is drafted by the model itself"),
        ("tree", {"selector": "topk"}, "trees are drafted over entries chosen once"),
        ("tree", {"gamma_policy": "auto"}, "a tree is as deep in every step"),
        ("gamma", {"gamma": 0, "tree": "specexec", "selector": "quest"}, "trees are drafted over"),
    ],
)
def test_what_the_engine_refuses_is_told_before_a_run(
    app: TuningApp, link: ScriptedLink, knob: str, way: dict[str, Any], said: str
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        before = dataclasses.replace(app.controller.settings, **way)
        app.controller.choose(before)
        app.screen.query_one(f"#knob-{knob}").focus()
        await settle(pilot)
        await pilot.press("right_square_bracket")
        await settle(pilot)
        assert said in text_of(app)
        assert app.controller.settings == before and link.runs == []
        await pilot.press("r")
        assert len(link.runs) == 1

    drive(app, steps, WIDE)


def test_stepping_passes_over_what_a_tree_rules_out_and_choosing_it_says_why(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        app.controller.choose(dataclasses.replace(app.controller.settings, tree="sequoia"))
        app.screen.query_one("#knob-draft").focus()
        await pilot.press("right_square_bracket")
        assert app.controller.settings.draft == "layers:20"  # of 30; not lookup
        await pilot.press("right_square_bracket")
        assert app.controller.settings.draft == "self"  # no cascade
        await pilot.press("enter")
        await settle(pilot)
        assert "lookup+self" in text_of(app) and "layers:6+self" in text_of(app)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert app.controller.settings.draft == "self"
        assert "a tree is drafted by the model itself" in text_of(app)

    drive(app, steps, WIDE)


def test_a_cascade_is_chosen_from_the_list(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        app.screen.query_one("#knob-draft").focus()
        await pilot.press("enter", "end", "enter")
        await settle(pilot)
        assert app.controller.settings.draft == "layers:6+self"
        assert "the cost model does not price cascades" in text_of(app)
        app.screen.query_one("#knob-selector").focus()
        await pilot.press("enter", "tab", *"topk", "enter")
        await settle(pilot)
        assert app.controller.settings.selector == "snapkv"
        assert "cascades are drafted" in text_of(app)

    drive(app, steps, WIDE)


def test_another_selector_does_not_get_the_options_of_the_one_before() -> None:
    knob = next(knob for knob in tui_knobs() if knob.name == "selector")
    settings = Settings(selector="streaming", selector_option={"sinks": 2})
    assert knob.set(settings, "streaming") == settings
    assert knob.set(settings, "snapkv").selector_option == {}


def test_layers_are_offered_as_far_as_the_model_is_known() -> None:
    assert draft_ways(None) == ("self", "lookup", "lookup+self")
    for layers in range(2, 80):
        found = [int(way.removesuffix("+self")[7:]) for way in draft_ways(layers) if ":" in way]
        assert len(found) == 2 and all(0 < count < layers for count in found)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tree", "specexec", "--selector", "topk"], "trees are drafted over entries chosen"),
        (["--draft", "lookup+self", "--selector", "quest"], "cascades are drafted over entries"),
        (["--tree", "sequoia", "--gamma", "auto"], "gamma auto has no effect on it"),
        (["--gamma", "plan.toml"], "give the app a number, adaptive or auto"),
    ],
)
def test_the_command_line_is_refused_in_a_line_too(
    flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("magicdec.cli.tui_command._check_terminal", lambda docs: None)
    entry = "[[gamma]]\nbatch = 1\ncontext = 1\ngamma = 2\n"
    Path("plan.toml").write_text(f'schema = "magicdec.gamma/1"\n{entry}')
    assert run_command_line(["tui", *flags]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
