"""The app with the real engine and the default model: keys stay quick, prefixes are reused."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from magicdec_scripted import screen_text
from textual.pilot import Pilot

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.link import ProcessLink
from magicdec.cli.tui.session_log import SessionLog
from magicdec.engine.loading import aliases
from magicdec.profiles.recorded.reader import read_profile

pytestmark = pytest.mark.slow
SETTINGS = Settings(context=900, batch=2, max_new_tokens=24)
PATIENCE = 180  # seconds for anything the engine does
#: Seconds in which half of the keys must show. On a machine with nothing else to do they take
#: about .03, and .1 is what is promised; other work beside a test may take its time.
QUICK = 1.0


@pytest.fixture(scope="module")
def model() -> None:
    aliases.pull("smollm2-135m", lambda what, share: None)


async def until(pilot: Pilot[None], phase: str) -> None:
    app = pilot.app
    assert isinstance(app, TuningApp)
    end = time.monotonic() + PATIENCE
    while app.controller.tuning.phase != phase:
        assert time.monotonic() < end and app.controller.tuning.phase not in ("failed", "gone")
        await asyncio.sleep(0.05)


async def press_and_time(pilot: Pilot[None], key: str) -> float:
    """Seconds from a key's arrival until the new value is drawn."""
    app = pilot.app
    assert isinstance(app, TuningApp)
    before = app.controller.settings
    began = time.perf_counter()
    app.simulate_key(key)
    while app.controller.settings == before:
        await asyncio.sleep(0)
    drawn = asyncio.Event()
    app.call_after_refresh(drawn.set)
    await drawn.wait()
    return time.perf_counter() - began


def test_a_session_with_the_default_model(model: None, tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "log.jsonl")
    link = ProcessLink()
    app = TuningApp(link, ["builtin:pydoc"], SETTINGS, log=log)
    waits: list[float] = []

    async def main() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, "idle")
            await pilot.press("r")
            while app.controller.tuning.phase == "running":  # keys while the engine works
                for key in ("right_square_bracket", "left_square_bracket"):
                    waits.append(await press_and_time(pilot, key))
                    await asyncio.sleep(0.02)
            first = app.controller.tuning.runs[1]
            assert first.status == "finished", first.error
            assert first.lossless is not None and first.lossless.ok
            assert first.measured(app.controller.tuning.plain_of(first)) is not None
            assert app.controller.settings == SETTINGS
            # A shorter context, another selector and budget, fewer rows: nothing but the last
            # queries of each prompt is computed again.
            changes = (
                Settings(context=700, batch=2, max_new_tokens=24),
                Settings(context=900, batch=2, max_new_tokens=24, selector="streaming", budget=64),
                Settings(context=900, batch=1, max_new_tokens=24),
            )
            for settings in changes:
                app.controller.choose(settings)
                await pilot.press("r")
                await until(pilot, "idle")
                run = app.controller.tuning.last
                assert run is not None and run.status == "finished", run
                for made in run.passes.values():
                    tally = made.tally
                    computed = tally.prompt_tokens - tally.reused_prompt_tokens
                    assert computed <= 64 * settings.batch, settings
            await pilot.press("q")

    try:
        asyncio.run(main())
    finally:
        link.close()
        log.close()
    waits.sort()
    median, worst = waits[len(waits) // 2], waits[int(len(waits) * 0.95)]
    print(f"\n{len(waits)} keys: median {median * 1e3:.0f} ms, 95% {worst * 1e3:.0f} ms")
    assert len(waits) > 10 and median < QUICK
    assert len(read_profile(log.path).cells) == 4


def test_a_bad_document_leaves_the_app_running(model: None, tmp_path: Path) -> None:
    link = ProcessLink()
    app = TuningApp(link, [str(tmp_path / "none.txt")], SETTINGS)

    async def main() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            end = time.monotonic() + PATIENCE
            while app.controller.tuning.phase != "failed":
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
            await pilot.pause(0.3)
            assert "there is no file" in "\n".join(screen_text(app))
            await pilot.press("escape")
            app.controller.open(["builtin:pydoc"])
            await until(pilot, "idle")

    try:
        asyncio.run(main())
    finally:
        link.close()
