"""The Tune action: asked for, followed, stopped, its answer in the knobs, its runs in the log."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from magicdec_scripted import (
    READY,
    SETTINGS,
    FakeClock,
    ScriptedLink,
    a_run,
    drive,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import Learned, Stop, Tune, TuneEnded, TuneStep
from magicdec.cli.tui.screens.dialogs import LineDialog, MessageDialog
from magicdec.cli.tui.session_log import SessionLog, recorded_run
from magicdec.cli.tui.state import Tuning
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json
from magicdec.profiles.recorded.reader import read_profile

ANSWER = dataclasses.replace(
    SETTINGS, selector="streaming", budget=128, gamma=2, draft_weights="int8"
)
LEARNED = Learned(dataclasses.replace(ANSWER, gamma=6), "int8", (0.9, 0.8, 0.7))
FOUND = TuneEnded(
    -1, "finished", answer=ANSWER, headline="Use streaming 128, γ 2: 1.31× measured",
    reasons=("Its acceptance of .90 pays for the draft.",), learned=(LEARNED,),
)  # fmt: skip


async def ask(pilot: Pilot[None], link: ScriptedLink) -> None:
    link.tell(READY)
    await settle(pilot)
    await pilot.press("t")
    assert isinstance(pilot.app.screen, LineDialog)
    await pilot.press("enter")
    await settle(pilot)


def test_its_answer_and_reason_come_and_the_knobs_have_it(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await ask(pilot, link)
        assert link.commands[-1] == Tune(-1, SETTINGS, ("snapkv", "streaming"))
        link.tell(TuneStep(-1, "context 1,000: what streaming drafts", 0.5))
        await pilot.pause(0.5)
        assert "tuning" in text_of(app) and "what streaming drafts" in text_of(app)
        await pilot.press("r")
        assert link.runs == []  # one thing at a time
        link.tell(FOUND)
        await settle(pilot)
        assert isinstance(app.screen, MessageDialog)
        assert "1.31× measured" in text_of(app) and "pays for the draft" in text_of(app)
        await pilot.press("escape")
        await settle(pilot)
        assert app.controller.settings == ANSWER and "streaming" in text_of(app)
        forecast = app.controller.forecast()
        assert forecast is not None and forecast.acceptance == "acceptance of the tuning"
        await pilot.press("r")
        assert link.runs[-1].settings == ANSWER

    drive(app, steps)


def test_a_stopped_tuning_leaves_the_knobs_alone_and_tells_what_it_knew(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await ask(pilot, link)
        await pilot.press("x", "x")
        assert [c for c in link.commands if isinstance(c, Stop)] == [Stop(-1)]
        link.tell(dataclasses.replace(FOUND, status="stopped"))
        await settle(pilot)
        assert app.controller.settings == SETTINGS and app.controller.tuning.phase == "idle"
        log = [line.text for line in app.controller.tuning.log]
        assert any("1.31×" in line for line in log)
        await pilot.press("t", "enter")
        await settle(pilot)
        assert link.commands[-1] == Tune(-2, SETTINGS, ("snapkv", "streaming"))

    drive(app, steps)


def test_one_that_fails_opens_a_dialog_and_the_app_goes_on(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await ask(pilot, link)
        link.tell(TuneEnded(-1, "failed", "needs 40 GiB, 16 are free"))
        await settle(pilot)
        assert "needs 40 GiB" in text_of(app)
        await pilot.press("escape", "r")
        assert len(link.runs) == 1

    drive(app, steps)


def test_a_selector_that_there_is_not_is_refused_in_the_dialog(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("t")
        app.screen.query_one("Input").value = "snapkv,pink"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, LineDialog) and "'pink'" in text_of(app)

    drive(app, steps)


def test_its_real_runs_are_in_the_log(tmp_path: Path) -> None:
    """In the same file as the runs of the session, as cells of a profile."""
    tuning = Tuning(FakeClock())
    tuning.apply(READY)
    tuning.begin(SETTINGS, None)
    for report in a_run(1):
        tuning.apply(report)
    recorded = recorded_run(tuning.runs[1], tuning)
    assert recorded is not None
    lines = (header_to_json(recorded.header), cell_to_json(recorded.cells[0]))
    log = SessionLog(tmp_path / "log.jsonl")
    app = TuningApp(ScriptedLink(), ["doc.txt"], SETTINGS, log=log)
    app.controller.tuning = tuning
    app.controller.log = log
    tuning.begin_tuning()
    assert (
        app.controller.receive(dataclasses.replace(FOUND, profile=tuple(map(json.dumps, lines))))
        is not None
    )
    log.close()
    assert [cell.key for cell in read_profile(log.path).cells] == [recorded.cells[0].key]


@pytest.mark.parametrize("gamma", [0, 4])
def test_what_the_tuner_decides_replaces_only_that(gamma: int) -> None:
    """Plain decoding leaves the drafter as it was: going back to it is one knob."""
    from magicdec.cli.tui.process.tuner import put

    before = Settings(
        context=900, batch=3, draft="lookup", temperature=0.5, gamma=8, gamma_policy="auto"
    )
    found = Settings(
        gamma=gamma, selector="streaming", budget=64, selector_option={"sinks": 2},
        draft_weights="same", max_new_tokens=9,
    ).decode_config()  # fmt: skip
    wanted = {"gamma": gamma, "gamma_policy": "fixed"}
    if gamma:
        wanted |= dict(
            draft="self", selector="streaming", budget=64, selector_option={"sinks": 2},
            draft_weights="same",
        )  # fmt: skip
    assert put(before, found) == dataclasses.replace(before, **wanted)


@pytest.mark.parametrize("way", [{"tree": "sequoia"}, {"gamma": 8, "gamma_policy": "auto"}])
def test_the_tuner_is_asked_without_trees_and_policies(way: dict[str, Any]) -> None:
    """Which it does not search; its answer then replaces them."""
    from magicdec.cli.tui.process.tuner import asked, put

    settings = dataclasses.replace(SETTINGS, **way)
    config = asked(settings, ("doc.txt",), ("snapkv",)).question.config
    assert (config.tree, config.gamma_policy.name) == ("none", "fixed")
    answer = put(settings, dataclasses.replace(config, gamma=2))
    assert (answer.tree, answer.gamma_policy, answer.gamma) == ("none", "fixed", 2)
