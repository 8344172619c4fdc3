"""The engine's process, with a fake session in it: it reports, stops, dies and goes with us."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from magicdec.cli.output.live_state import PLAIN, SPECULATIVE
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.process.link import ProcessLink
from magicdec.cli.tui.process.messages import (
    Command,
    Failed,
    Gone,
    Happened,
    Loading,
    Open,
    PassBegan,
    Ready,
    Report,
    Run,
    RunBegan,
    RunEnded,
    Stop,
    Tune,
    TuneEnded,
    TuneStep,
)
from magicdec.cli.tui.process.wire import encode
from magicdec.engine.events import StepFinished

FAKE = Path(__file__).with_name("fake_worker.py")
SETTINGS = Settings(context=800, batch=2, max_new_tokens=20)
TIMEOUT = 30


class Talk:
    """A link with a fake engine, and what it has said."""

    def __init__(self, scene: str = "", delay: float = 0.0) -> None:
        self.link = ProcessLink([sys.executable, str(FAKE), scene, str(delay)])
        self.heard: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self.link.start(self.heard.put)

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.link.send(command)

    def until(self, *kinds: type[Report]) -> list[Report]:
        reports: list[Report] = []
        while not (reports and isinstance(reports[-1], kinds)):
            reports.append(self.heard.get(timeout=TIMEOUT))
        return reports


@pytest.fixture
def talks() -> Iterator[list[Talk]]:
    made: list[Talk] = []
    yield made
    for talk in made:
        talk.link.close()


def start(talks: list[Talk], scene: str = "", delay: float = 0.0) -> Talk:
    talk = Talk(scene, delay)
    talks.append(talk)
    talk.send(Open(("doc.txt",), SETTINGS))
    return talk


def test_a_run_is_reported_and_plain_decoding_measured_once(talks: list[Talk]) -> None:
    talk = start(talks)
    opening = talk.until(Ready, Failed)
    assert isinstance(opening[0], Loading) and isinstance(opening[-1], Ready)
    talk.send(Run(1, SETTINGS))
    first = talk.until(RunEnded)
    assert [r.title for r in first if isinstance(r, PassBegan)] == [PLAIN, SPECULATIVE]
    end = first[-1]
    assert isinstance(end, RunEnded) and end.status == "finished"
    assert end.lossless is not None and end.lossless.identical
    other = Settings(context=800, batch=2, max_new_tokens=20, gamma=5, budget=64)
    talk.send(Run(2, other))
    second = talk.until(RunEnded)
    assert [r.title for r in second if isinstance(r, PassBegan)] == [SPECULATIVE]
    assert [r.plain_run for r in second if isinstance(r, RunBegan)] == [1]
    talk.send(Run(3, other, again=True))
    assert [r.plain_run for r in talk.until(RunEnded) if isinstance(r, RunBegan)] == [3]
    talk.send(Run(4, Settings(context=700, batch=2, max_new_tokens=20)))
    assert [r.plain_run for r in talk.until(RunEnded) if isinstance(r, RunBegan)] == [4]


def test_a_run_says_how_steady_the_machine_was_in_it_and_in_its_plain_decoding(
    talks: list[Talk],
) -> None:
    """The app that waits for it is no other program."""
    talk = start(talks, delay=0.02)
    talk.until(Ready)
    ends = []
    for number, gamma in ((1, 3), (2, 5), (3, 0)):
        talk.send(Run(number, Settings(context=800, batch=2, max_new_tokens=20, gamma=gamma)))
        ends.append(talk.until(RunEnded)[-1])
    assert all(isinstance(end, RunEnded) for end in ends)
    first, second, plain = (end.steadiness for end in ends if isinstance(end, RunEnded))
    assert first is not None and second is not None and plain is not None
    assert first.plain_scatter == second.plain_scatter == plain.plain_scatter is not None
    assert plain.speculative_scatter is None
    assert (first.turns, plain.turns) == (1, 0)


def test_stop_takes_effect_within_a_step(talks: list[Talk]) -> None:
    talk = start(talks, delay=0.05)
    talk.until(Ready)
    talk.send(Run(1, SETTINGS))
    while not (isinstance(last := talk.until(Happened)[-1], Happened)
               and isinstance(last.event, StepFinished)):  # fmt: skip
        pass
    talk.send(Stop(1))
    rest = talk.until(RunEnded)
    steps = [r for r in rest if isinstance(r, Happened) and isinstance(r.event, StepFinished)]
    assert len(steps) <= 2  # one that was under way, one that was in the pipe
    assert isinstance(rest[-1], RunEnded) and rest[-1].status == "stopped"
    talk.send(Stop(2), Run(2, SETTINGS))
    assert [type(r) for r in talk.until(RunEnded)] == [RunEnded]  # stopped before it began
    talk.send(Run(3, Settings(context=800, batch=1, max_new_tokens=3)))
    end = talk.until(RunEnded)[-1]
    assert isinstance(end, RunEnded) and end.status == "finished"


def test_a_tuning_is_interrupted_wherever_it_is_and_a_run_may_follow(talks: list[Talk]) -> None:
    talk = start(talks, "tune-hangs")
    talk.until(Ready)
    talk.send(Tune(-1, SETTINGS, ("snapkv",)))
    assert talk.until(TuneStep)[-1] == TuneStep(-1, "surveying", 0.25)
    talk.send(Stop(-1))
    end = talk.until(TuneEnded)[-1]
    assert isinstance(end, TuneEnded) and (end.status, end.answer) == ("stopped", None)
    talk.send(Stop(-2), Tune(-2, SETTINGS, ("snapkv",)))  # stopped before it began
    assert [type(report) for report in talk.until(TuneEnded)] == [TuneEnded]
    talk.send(Run(1, SETTINGS))
    run = talk.until(RunEnded)[-1]
    assert isinstance(run, RunEnded) and run.status == "finished"


@pytest.mark.parametrize(
    ("selectors", "said"), [(("snapkv",), "needs 40 GiB"), (("pink",), "'pink'")]
)
def test_a_tuning_that_fails_says_why(
    talks: list[Talk], selectors: tuple[str, ...], said: str
) -> None:
    talk = start(talks, "tune-fails")
    talk.until(Ready)
    talk.send(Tune(-1, SETTINGS, selectors))
    end = talk.until(TuneEnded)[-1]
    assert isinstance(end, TuneEnded) and end.status == "failed"
    assert end.error is not None and said in end.error


@pytest.mark.parametrize(("scene", "said"), [("document", "missing.txt"), ("model", "no model"),
                                             ("crash", "fallen over")])  # fmt: skip
def test_what_cannot_be_opened_is_one_line_and_can_be_tried_again(
    talks: list[Talk], scene: str, said: str
) -> None:
    talk = start(talks, scene)
    for _ in range(2):
        end = talk.until(Ready, Failed)[-1]
        assert isinstance(end, Failed) and said in end.error and "\n" not in end.error
        talk.send(Open(("doc.txt",), SETTINGS))


def test_a_run_without_memory_fails_and_the_next_may_work(talks: list[Talk]) -> None:
    talk = start(talks, "memory")
    talk.until(Ready)
    for number in (1, 2):
        talk.send(Run(number, SETTINGS))
        end = talk.until(RunEnded)[-1]
        assert isinstance(end, RunEnded) and end.status == "failed"
        assert end.error is not None and "batch 2 at context 4000 fits" in end.error


def test_a_process_that_dies_is_told_of_with_its_last_line(talks: list[Talk]) -> None:
    talk = start(talks, "die")
    talk.until(Ready)
    talk.send(Run(1, SETTINGS))
    end = talk.until(Gone)[-1]
    assert isinstance(end, Gone)
    assert "SIGKILL" in end.error and end.error.endswith("said its last word")
    talk.send(Run(2, SETTINGS))  # goes nowhere, and raises nothing


def test_what_libraries_print_does_not_disturb_the_reports(talks: list[Talk]) -> None:
    talk = start(talks, "noise")
    talk.until(Ready)
    talk.send(Run(1, SETTINGS))
    end = talk.until(RunEnded, Gone)[-1]
    assert isinstance(end, RunEnded) and end.status == "finished"


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "running"])
def test_closing_ends_the_process_soon_and_silently(talks: list[Talk], busy: bool) -> None:
    talk = start(talks, delay=0.5)
    process = talk.link._process
    assert process is not None
    if busy:
        talk.until(Ready)
        talk.send(Run(1, SETTINGS))
        talk.until(RunBegan)
    before = time.monotonic()
    talk.link.close()
    seconds = time.monotonic() - before
    print(f"closed in {seconds:.1f} s")  # about 2 at most, where nothing else takes the machine
    assert process.poll() is not None and seconds < TIMEOUT
    while not talk.heard.empty():
        assert not isinstance(talk.heard.get(), Gone)


def test_it_does_not_outlive_an_app_that_was_killed() -> None:
    command = [sys.executable, str(FAKE), "", "0.2"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(encode(Open(("doc.txt",), SETTINGS)) + encode(Run(1, SETTINGS)))
    process.stdin.flush()
    while b"RunBegan" not in process.stdout.readline():
        pass
    os.close(process.stdin.fileno())  # what the system does for a process that is gone
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()
