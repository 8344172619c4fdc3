"""Makes the README's pictures of the app from its recorded session.

python examples/app_pictures.py examples
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from textual.pilot import Pilot

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.replay import Replay, demo_file

SIZE = (110, 34)
RUNS, STEPS = 3, 14  # whole runs, and the steps of the next one before the picture is taken


async def until(pilot: Pilot[None], phase: str) -> None:
    app = pilot.app
    assert isinstance(app, TuningApp)
    while app.controller.tuning.phase != phase:
        await asyncio.sleep(0.01)
    await pilot.pause(0.5)  # drawn a few times a second


async def pictures(folder: Path) -> None:
    replay = Replay(demo_file(), speed=0)
    app = TuningApp(replay, ["builtin:pydoc"], Settings(context=4000, batch=4), demo=True)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, "idle")
        for number in range(RUNS):
            await pilot.press("r")
            await until(pilot, "idle")
            if number == 0:
                await pilot.press("c")
        replay.speed = 1
        await pilot.press("r")
        while (main := app.controller.tuning.runs[RUNS + 1].main) is None or (
            main.tally.steps < STEPS
        ):
            await asyncio.sleep(0.05)
        app.clear_notifications()
        await pilot.press("space")
        await pilot.pause(0.5)
        (folder / "app.svg").write_text(app.export_screenshot(title="magicdec tui"))
        await pilot.press("space", "x")
        await until(pilot, "idle")
        app.controller.choose(app.controller.tuning.runs[1].settings)
        app.clear_notifications()
        await pilot.press("shift+tab", "tab", "6", "m")
        await pilot.pause(0.5)
        (folder / "curve.svg").write_text(app.export_screenshot(title="magicdec tui, panel 6"))
    replay.close()


if __name__ == "__main__":
    asyncio.run(pictures(Path(sys.argv[1])))
