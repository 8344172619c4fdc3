"""The recorded session, the log of a tuning, and the command that starts the app."""

from __future__ import annotations

import asyncio
import os
import pty
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from magicdec_scripted import (
    READY,
    SETTINGS,
    FakeClock,
    a_run,
    begin,
    screen_text,
    speculative_events,
)

from magicdec.cli.output.live_state import SPECULATIVE
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import (
    Happened,
    Open,
    PassBegan,
    Report,
    Run,
    RunEnded,
    Stop,
    Tune,
    TuneEnded,
    TuneStep,
)
from magicdec.cli.tui.process.replay import Moment, Replay, demo_file, write_recording
from magicdec.cli.tui.session_log import SessionLog, recorded_run
from magicdec.cli.tui.state import Tuning
from magicdec.profiles.recorded.reader import read_profile

DEMO_PROBE = """
import sys
from pathlib import Path
from magicdec.cli.tui.process.replay import Replay, demo_file
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import RunEnded
from magicdec.cli.settings.knobs import Settings
app = TuningApp(Replay(demo_file(), speed=0), ["doc"], Settings(context=1024), demo=True)
async def main():
    async with app.run_test(size=(120, 40)) as pilot:
        while app.controller.tuning.phase == "loading":
            await pilot.pause(0.05)
        for number in (1, 2):
            await pilot.press("r")
            while app.controller.tuning.phase != "idle":
                await pilot.pause(0.05)
    return [run.status for run in app.controller.tuning.runs.values()]
import asyncio
print(asyncio.run(main()), [n for n in ("torch", "transformers") if n in sys.modules])
"""


def test_the_demo_needs_neither_weights_nor_torch(tmp_path: Path) -> None:
    env = {**os.environ, "MAGICDEC_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", DEMO_PROBE], capture_output=True, text=True, env=env, timeout=120
    )
    assert done.stdout.strip() == "['finished', 'finished'] []", done.stderr


def test_the_demo_is_a_whole_session_that_speeds_up_and_is_lossless() -> None:
    replay, tuning = Replay(demo_file(), speed=0), Tuning(FakeClock())
    ends: list[RunEnded] = []
    ended = threading.Semaphore(0)

    def hear(report: Report) -> None:
        tuning.apply(report)
        if isinstance(report, RunEnded):
            ends.append(report)
            ended.release()

    replay.start(hear)
    replay.send(Open(("doc",), SETTINGS))
    for number in range(1, 6):  # one more than were recorded: it begins again
        settings = replay.bound(SETTINGS)
        assert settings is not None
        tuning.begin(settings, None)
        replay.send(Run(number, settings))
        assert ended.acquire(timeout=10)
    replay.close()
    assert [end.status for end in ends] == ["finished"] * 5
    assert all(end.lossless is not None and end.lossless.ok for end in ends)
    first = tuning.runs[1].measured(tuning.plain_of(tuning.runs[1]))
    again = tuning.runs[5].measured(tuning.plain_of(tuning.runs[5]))
    assert first is not None and first == again and first.speedup > 1


def test_a_replayed_run_can_be_stopped(tmp_path: Path) -> None:
    path = tmp_path / "slow.jsonl"
    write_recording(path, [Moment(i * 0.5, report) for i, report in enumerate([READY, *a_run(1)])])
    replay, heard = Replay(path), []
    ended = threading.Event()

    def hear(report: Report) -> None:
        heard.append(report)
        if isinstance(report, RunEnded):
            ended.set()

    replay.start(hear)
    replay.send(Run(1, SETTINGS))
    replay.send(Stop(1))
    assert ended.wait(10)
    replay.close()
    assert heard[-1] == RunEnded(1, "stopped") and len(heard) < 10


def test_a_replay_without_a_tuning_says_so_and_one_with_it_plays_it(tmp_path: Path) -> None:
    found = TuneEnded(-1, "finished", answer=SETTINGS, headline="Use it")
    recorded: list[Report] = [READY, *a_run(1), TuneStep(-1, "surveying", 0.5), found]
    for count, wanted in ((len(recorded), "finished"), (len(recorded) - 2, "failed")):
        path = tmp_path / f"{wanted}.jsonl"
        write_recording(path, [Moment(0, report) for report in recorded[:count]])
        heard: queue.SimpleQueue[Report] = queue.SimpleQueue()
        replay = Replay(path, speed=0)
        replay.start(heard.put)
        replay.send(Tune(-4, SETTINGS, ("snapkv",)))
        end = heard.get(timeout=10)
        while not isinstance(end, TuneEnded):
            end = heard.get(timeout=10)
        replay.close()
        assert (end.run, end.status) == (-4, wanted)


def tuning_of(*reports: list[Report]) -> Tuning:
    tuning = Tuning(FakeClock())
    tuning.apply(READY)
    for run in reports:
        tuning.begin(begin(1).settings if not run else run[0].settings, None)  # type: ignore[union-attr]
        for report in run:
            tuning.apply(report)
    return tuning


def test_the_log_is_a_profile_that_grows_with_every_run(tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "deep" / "log.jsonl")
    other = SETTINGS.__class__(context=1000, batch=2, max_new_tokens=25, budget=64)
    tuning = tuning_of(a_run(1), a_run(2, other, plain=False))
    for count, run in enumerate(tuning.runs.values(), start=1):
        assert log.keep(recorded_run(run, tuning)) is None
        assert len(read_profile(log.path).cells) == count
    log.close()
    profile = read_profile(log.path)
    assert profile.header.model == "smollm2-135m" and not profile.warnings
    first, second = profile.cells
    assert (first.key.budget, second.key.budget) == (256, 64)
    measured = tuning.runs[2].measured(tuning.plain_of(tuning.runs[2]))
    assert measured is not None and second.speedup == pytest.approx(measured.speedup)
    assert first.lossless.identical and first.step.plain == pytest.approx(0.0413)
    assert first.step.draft == pytest.approx(0.0181 / 3)


def test_a_stopped_run_is_kept_as_one_that_failed(tmp_path: Path) -> None:
    reports: list[Report] = [*a_run(1)]
    part: list[Report] = [begin(2, plain_run=1), PassBegan(2, SPECULATIVE)]
    part += [Happened(2, event) for event in list(speculative_events())[:9]]
    tuning = tuning_of(reports, [*part, RunEnded(2, "stopped")])
    log = SessionLog(tmp_path / "log.jsonl")
    assert log.keep(recorded_run(tuning.runs[2], tuning)) is None
    (cell,) = read_profile(log.path).cells
    assert cell.status == "failed" and cell.error == "interrupted" and cell.drafted


def test_a_log_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = SessionLog(tmp_path / "file" / "log.jsonl")
    tuning = tuning_of(a_run(1))
    trouble = log.keep(recorded_run(tuning.runs[1], tuning))
    assert trouble is not None and "cannot be written" in trouble


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["tui"], "not a terminal"), (["tui", "-"], "give a file"), (["tui", "--gamma", "99"], "")],
)
def test_without_a_terminal_it_is_one_line(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "magicdec.cli", *arguments],
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and said in done.stderr


def test_an_unknown_theme_is_refused_with_those_there_are() -> None:
    """In a terminal of its own, since without one nothing gets that far."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "magicdec.cli", "tui", "--demo", "--theme", "pink"],
        stdin=side, stdout=side, stderr=side,
        env={**os.environ, "COLUMNS": "80", "LINES": "24"},  # whatever other tests have set
    )  # fmt: skip
    os.close(side)
    assert process.wait(60) == 2
    said = os.read(main, 4000).decode()
    os.close(main)
    assert "no theme is called 'pink'" in said and "textual-dark" in said


def test_the_demo_says_that_it_is_one() -> None:
    app = TuningApp(Replay(demo_file(), speed=0), ["doc"], SETTINGS, demo=True)

    async def main() -> tuple[str, str]:
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            while app.controller.tuning.phase == "loading":
                await pilot.pause(0.05)
            before = "\n".join(screen_text(app))
            await pilot.press("r")
            await pilot.pause()
            return before, " ".join(notice.message for notice in app._notifications)

    before, said = asyncio.run(main())
    assert "recorded session" in before
    assert said == "a recorded run plays, with its own settings"
