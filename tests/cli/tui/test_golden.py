"""The screen as text, compared with files: change one with UPDATE_GOLDEN=1 and read the diff."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from magicdec_scripted import (
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
    speculative_events,
)
from textual.pilot import Pilot

from magicdec.cli.output.live_state import PLAIN, SPECULATIVE
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import (
    Gone,
    Happened,
    PassBegan,
    RunEnded,
    TuneEnded,
    TuneStep,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "tui"
Make = Callable[[], TuningApp]
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x50": (200, 50)}


def compare(name: str, lines: list[str]) -> None:
    path = GOLDEN / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()


async def running(pilot: Pilot[None], link: ScriptedLink, clock: FakeClock) -> None:
    """In the middle of a run's second pass, after one whole run."""
    link.tell(READY)
    await pilot.press("r")
    clock.seconds += 42
    link.tell(*a_run(1))
    await settle(pilot)
    await pilot.press("left_square_bracket", "r")
    settings = link.runs[-1].settings
    link.tell(begin(2, settings, 1), PassBegan(2, SPECULATIVE))
    clock.seconds += 7
    events = list(speculative_events(settings))[:13]
    link.tell(*(Happened(2, event, ((0, " two"), (1, " as it"))) for event in events))
    await pilot.pause(0.5)


@pytest.mark.parametrize("size", SIZES)
def test_running(size: str, app: TuningApp, link: ScriptedLink, clock: FakeClock) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        compare(f"running-{size}", screen_text(app))

    drive(app, steps, SIZES[size])


@pytest.mark.parametrize("size", SIZES)
def test_finished(size: str, app: TuningApp, link: ScriptedLink, clock: FakeClock) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        clock.seconds += 42
        link.tell(*a_run(1))
        await settle(pilot)
        compare(f"finished-{size}", screen_text(app))

    drive(app, steps, SIZES[size])


def test_welcome(app: TuningApp, link: ScriptedLink) -> None:
    """What a newcomer sees first."""

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        compare("welcome", screen_text(app))

    drive(app, steps)


def test_tuning_and_its_answer(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("t")
        await settle(pilot)
        compare("tune-asks", screen_text(app))
        await pilot.press("enter")
        link.tell(TuneStep(-1, "round 1 of 2: streaming 128, γ 2, int8", 0.5))
        await pilot.pause(0.5)
        compare("tuning", screen_text(app))
        answer = dataclasses.replace(SETTINGS, selector="streaming", budget=128, gamma=2)
        why = ("It drafts in a fifth of a plain step, and 1.8 of 2 tokens are accepted.",)
        headline = "Use streaming 128, γ 2, int8: 1.31× measured (1.29 to 1.33)"
        link.tell(TuneEnded(-1, "finished", None, answer, headline, why))
        await settle(pilot)
        compare("tuned", screen_text(app))

    drive(app, steps)


def test_a_run_that_does_not_fit(app: TuningApp, link: ScriptedLink) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        why = "the run needs 40.0 GiB, 16.0 are free: batch 2 at context 4,000 fits"
        link.tell(begin(1), RunEnded(1, "failed", why))
        await settle(pilot)
        compare("failed", screen_text(app))

    drive(app, steps)


def test_paused(app: TuningApp, link: ScriptedLink, clock: FakeClock) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        await pilot.press("space")
        await settle(pilot)
        compare("paused", screen_text(app))

    drive(app, steps)


def test_stopped(app: TuningApp, link: ScriptedLink, clock: FakeClock) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        await pilot.press("x")
        link.tell(RunEnded(2, "stopped"))
        await settle(pilot)
        compare("stopped", screen_text(app))

    drive(app, steps)


def test_error(app: TuningApp, link: ScriptedLink, clock: FakeClock) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        why = "signal SIGKILL, which is how a system ends a process when memory is short"
        link.tell(Gone(f"the engine's process ended ({why})"))
        await settle(pilot)
        compare("error", screen_text(app))

    drive(app, steps)


def test_prefill_and_a_screen_too_small_for_panels(
    app: TuningApp, link: ScriptedLink, clock: FakeClock
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(begin(1), PassBegan(1, PLAIN))
        link.tell(*(Happened(1, event) for event in list(plain_events())[:3]))
        await pilot.pause(0.5)
        compare("prefill", screen_text(app))
        link.tell(*a_run(1)[5:])
        await pilot.resize_terminal(50, 6)
        await settle(pilot)
        compare("tiny", screen_text(app))

    drive(app, steps)


def test_no_color_looks_the_same_and_has_no_colour(
    app: TuningApp, link: ScriptedLink, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    plain = TuningApp(link, ["doc.txt"], SETTINGS, now=clock)

    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        compare("running-80x24", screen_text(plain))
        strips = plain.screen._compositor.render_strips()
        for strip in strips:
            for segment in strip:
                for color in (segment.style and segment.style.color,):
                    if color is not None and color.triplet is not None:
                        red, green, blue = color.triplet
                        assert red == green == blue

    drive(plain, steps)


@pytest.mark.parametrize("size", SIZES)
def test_ascii(size: str, link: ScriptedLink, clock: FakeClock, app: TuningApp) -> None:
    plain = TuningApp(link, ["doc.txt"], SETTINGS, now=clock, ascii=True)

    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        compare(f"ascii-{size}", screen_text(plain))
        for keys in (["6"], ["5"], ["question_mark"], ["escape", "o"], ["escape", "e"]):
            await pilot.press(*keys)
            await settle(pilot)
            assert all(line.isascii() for line in screen_text(plain)), keys

    drive(plain, steps, SIZES[size])


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark", "ansi-light"])
def test_themes_change_colours_and_nothing_else(
    theme: str, app: TuningApp, link: ScriptedLink, clock: FakeClock
) -> None:
    app.theme = theme

    async def steps(pilot: Pilot[None]) -> None:
        await running(pilot, link, clock)
        compare("running-80x24", screen_text(app))

    drive(app, steps)
