"""Signals at seeded moments of every long command: what is finished is delivered, in one piece.

A moment is the n-th call of a function of the package, so that the same seed gives the same ones
on every machine. After the first signal others follow, without a pause.
"""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from magicdec.cli import interrupts
from magicdec.cli.main import run_command_line
from magicdec.engine.loading import aliases
from magicdec.engine.report import Recorder
from magicdec.profiles.calibration import check, measure
from magicdec.profiles.calibration.store import load_calibration
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.writer import ProfileWriter

MOMENTS = 100  # of each long command, half of them in its last tenth

ROOT = str(Path(interrupts.__file__).parents[1])
SENT = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
MODEL = ("--device", "cpu", "--threads", "1")
ROWS = ("--budget", "16", "--max-new-tokens", "6", "--ignore-eos", "--context", "60", "-q")


class Ended(BaseException):
    """Stands in for the end of the process."""


@dataclass
class Signalled:
    """One command, with a signal at a moment; 0 for none."""

    code: int
    out: str
    err: str
    calls: int
    at_once: bool = False  # it ended before there was anything to keep
    done: dict[str, list[Any]] = field(default_factory=dict)  # what was finished until the end


LEFT: list[int] = []


def leave(code: int) -> None:
    LEFT.append(code)
    raise Ended(code)


class Storm:
    """Signals to the main thread, one after the other, until the command has ended."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        while not self._over.wait(0.001):
            for number in SENT:
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread.ident:
            self._thread.join()


@pytest.fixture
def place(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Path
) -> Path:
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setenv("MAGICDEC_MODEL", str(checkpoint))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = "All the world is a stage, and all the men and women merely players. " * 8
    (folder / "doc.txt").write_text(text)
    monkeypatch.setattr(os, "_exit", leave)
    return folder


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Whatever a command has finished, by the function that has come to its end with it."""
    found: dict[str, list[Any]] = {}

    def spy(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*given: Any) -> Any:
            result = original(*given)
            found.setdefault(name, []).append(given[-1])
            return result

        monkeypatch.setattr(owner, name, call)

    spy(Recorder, "add")
    spy(ProfileWriter, "append")
    spy(check, "append_cells")
    monkeypatch.setattr(check, "append_cells", check.append_cells)
    return found


@pytest.fixture
def send(
    place: Path, signals: None, capsys: pytest.CaptureFixture[str], done: dict[str, list[Any]]
) -> Callable[..., Signalled]:
    def at(command: list[str], moment: int = 0, number: int = signal.SIGTERM) -> Signalled:
        signals_again()
        done.clear()
        LEFT.clear()
        calls, storm = 0, Storm()

        def profile(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            if event == "call" and frame.f_code.co_filename.startswith(ROOT):
                calls += 1
                if calls == moment:
                    storm.begin()
                    signal.raise_signal(number)

        code, at_once = 130, False
        gc.disable()  # so that moments are the same in every run
        try:
            sys.setprofile(profile)
            code = run_command_line(command)
        except Ended as ended:
            code, at_once = int(ended.args[0]), True
        finally:
            sys.setprofile(None)
            interrupts.hold()
            storm.end()
            gc.enable()
        out, err = capsys.readouterr()
        if LEFT and not at_once:  # the stand-in was swallowed in a callback; a process ends there
            return Signalled(LEFT[0], "", "interrupted\n", calls, True, dict(done))
        assert "Traceback" not in err and "Exception ignored" not in err
        assert not list(place.glob(".magicdec-*"))
        return Signalled(code, out, err, calls, at_once, dict(done))

    return at


def signals_again() -> None:
    for number, default in interrupts.DEFAULTS.items():
        signal.signal(number, default)
    interrupts.exit_at_once()


def moments(calls: int, count: int = MOMENTS) -> Iterator[tuple[int, int]]:
    """Half of them in the last tenth, where results are delivered."""
    chance = random.Random(15)
    for number in range(count):
        first = 1 if number % 2 else calls * 9 // 10
        yield chance.randint(first, calls), chance.choice(SENT)


def judge(end: Signalled) -> None:
    """What holds for every command."""
    assert end.code in (0, 130)
    if end.at_once:
        assert end.out == "" and end.err.splitlines()[-1] == "interrupted"  # behind notes
    elif end.code == 130:
        last = end.err.splitlines()[-1]
        assert last.startswith(("interrupted: ", "magicdec: interrupted"))


def test_run(send: Callable[..., Signalled]) -> None:
    command = ["run", "doc.txt", *MODEL, *ROWS, "--batch", "2", "--compare", "--json"]
    send(command)
    whole = send(command)
    texts = [row["text"] for row in json.loads(whole.out)["rows"]]
    codes = set()
    for moment, number in moments(whole.calls):
        end = send(command, moment, number)
        judge(end)
        codes.add(end.code)
        if end.at_once:
            continue
        record = json.loads(end.out)
        assert record["interrupted"] is (end.code == 130)
        rows = record["rows"] + (record["baseline"] or {"rows": []})["rows"]
        ended = [e for e in end.done.get("add", []) if type(e).__name__ == "RowFinished"]
        assert sum(row["finish_reason"] is not None for row in rows) >= len(ended)
        assert all(texts[row["row"]].startswith(row["text"]) for row in rows)
    assert codes == {0, 130}


def test_profile_record(send: Callable[..., Signalled], place: Path) -> None:
    command = ["profile", "record", "doc.txt", *MODEL, *ROWS, "--gamma", "1,2", "--repeat", "1",
               "-o", "sweep.jsonl"]  # fmt: skip
    path = place / "sweep.jsonl"
    send(command)
    path.unlink()
    whole = send(command)
    for moment, number in moments(whole.calls):
        path.unlink(missing_ok=True)
        end = send(command, moment, number)
        judge(end)
        finished = len(end.done.get("append", []))
        cells = read_profile(path).cells if path.exists() and path.read_text().count("\n") else ()
        assert len(cells) >= finished and all(cell.status == "ok" for cell in cells)
    assert send(command).code == 0 and len(read_profile(path).cells) == 2


def test_profile_survey(
    send: Callable[..., Signalled], monkeypatch: pytest.MonkeyPatch, done: dict[str, list[Any]]
) -> None:
    command = ["profile", "survey", "doc.txt", *MODEL, *ROWS, "--selector", "snapkv,streaming",
               "--format", "json"]  # fmt: skip
    send(command)
    whole = send(command)
    assert len(json.loads(whole.out)["drafters"]) == 2
    for moment, number in moments(whole.calls):
        end = send(command, moment, number)
        judge(end)
        if end.out:
            assert len(json.loads(end.out)["drafters"]) in (1, 2)
        else:
            said = ("nothing was finished", "interrupted (")  # torch makes other errors of it
            assert end.at_once or any(words in end.err for words in said)


@pytest.fixture
def small(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small grids; and nothing that is measured of the machine itself."""
    document = place / "doc.txt"
    document.write_text(document.read_text() * 4)
    rounds = ((("snapkv", 32), ("streaming", 16)),)
    monkeypatch.setattr(
        measure.Grid.__init__, "__defaults__", ((1, 2), (200, 60), (1, 3), rounds, 1, 2, 0.0)
    )
    for name, values in {"BATCHES": (1, 2), "CONTEXTS": (40, 90), "BUDGETS": (16,), "GAMMAS": (1,),
                         "ROUNDS": 1}.items():  # fmt: skip
        monkeypatch.setattr(check, name, values)
    monkeypatch.setattr("magicdec.profiles.calibration.measure.places", lambda cached: 1)
    monkeypatch.setattr("magicdec.profiles.calibration.measure.READ_BYTES", 4096)
    monkeypatch.setattr(
        "magicdec.profiles.calibration.measure.Machine.sample", lambda machine: None
    )
    monkeypatch.setattr("magicdec.profiles.calibration.measure.Machine.read_rate", 1e10)
    monkeypatch.setattr("magicdec.profiles.calibration.measure.Machine.gemm_rate", 1e11)


CALIBRATE = ["calibrate", "doc.txt", *MODEL, "-q", "--json"]


@pytest.mark.slow
def test_calibrate(send: Callable[..., Signalled], small: None, own_cache: Path) -> None:
    send(CALIBRATE)
    whole = send(CALIBRATE)
    for moment, number in moments(whole.calls):
        for stored in own_cache.glob("calibration*/**/*.json"):
            stored.unlink()
        end = send(CALIBRATE, moment, number)
        judge(end)
        assert (load_calibration() is not None) is (end.code == 0)
        assert bool(end.out) is (end.code == 0) and (not end.out or json.loads(end.out))
        if not end.at_once:
            assert ("nothing was stored" in end.err) is (end.code == 130)


@pytest.mark.slow
def test_calibrate_check(send: Callable[..., Signalled], small: None) -> None:
    assert send(CALIBRATE).code == 0
    command = ["calibrate", "doc.txt", *MODEL, "-q", "--check", "check.jsonl"]
    whole = send(command)
    for moment, number in moments(whole.calls):
        Path("check.jsonl").unlink(missing_ok=True)
        end = send(command, moment, number)
        judge(end)
        finished = [cell for cells in end.done.get("append_cells", []) for cell in cells]
        assert len(check.read_cells(Path("check.jsonl"))) >= len(finished)
        assert ("4 cells: " in end.out) is (end.code == 0)


@pytest.mark.slow
def test_tune(send: Callable[..., Signalled], small: None) -> None:
    assert send(CALIBRATE).code == 0
    command = ["tune", "doc.txt", *MODEL, *ROWS[2:], "--budget", "16", "--gamma", "1,2",
               "--selector", "streaming", "--draft-weights", "same", "--batch", "2", "--verify",
               "1", "--repeats", "1", "--format", "json", "-o", "tuned.jsonl"]  # fmt: skip
    whole = send(command)
    Path("tuned.jsonl").unlink()
    for moment, number in moments(whole.calls):
        end = send(command, moment, number)
        judge(end)
        if end.out:
            record = json.loads(end.out)
            assert record["interrupted"] is (end.code == 130)
            assert record["contexts"][0]["predicted"]
        else:
            assert "nothing is known yet" in end.err or end.at_once
        if end.code == 0:
            assert len(read_profile(Path("tuned.jsonl")).cells) == 1
        Path("tuned.jsonl").unlink(missing_ok=True)


@pytest.mark.parametrize("output", [[], ["-o", "grid.csv"]])
def test_predict(send: Callable[..., Signalled], place: Path, output: list[str]) -> None:
    command = ["predict", "--hardware", "8xH100", "--model", "llama-3.1-8b", "--alpha", ".8",
               "--batch", "1-64*2", "--context", "4k-16k*2", "--format", "csv",
               *output]  # fmt: skip
    send(command)
    whole = send(command)
    path = place / "grid.csv"
    rows = list(csv.reader((path.read_text() if output else whole.out).splitlines()))
    kept = set()
    for moment, number in moments(whole.calls):
        path.unlink(missing_ok=True)
        end = send(command, moment, number)
        judge(end)
        text = path.read_text() if path.exists() else end.out
        if not end.at_once:
            assert text == "" or text.endswith("\n")
        found = list(csv.reader(text.splitlines()))
        assert found == rows[: len(found)] and (end.code == 130 or found == rows)
        kept.add(len(found))
    assert len(kept) > 5


def test_models_pull(
    send: Callable[..., Signalled], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(alias: aliases.Alias, folder: Path, progress: Callable[..., None]) -> None:
        for part in range(20):
            progress("downloading", part / 20)
            (folder / f"part-{part}").write_text("whole")

    monkeypatch.setattr(aliases.Alias, "build", build)
    command = ["models", "pull", aliases.DEFAULT]
    whole = send(command)
    entry = Path(whole.out.strip())
    for moment, number in moments(whole.calls):
        for path in entry.glob("*"):
            path.unlink()
        end = send(command, moment, number)
        judge(end)
        complete = len(list(entry.glob("part-*"))) == 20
        assert (end.out == f"{entry}\n") is complete and complete >= (end.code == 0)
        if end.code == 130 and not end.at_once:
            assert ("nothing is kept" in end.err) is not complete
        assert not any(path.is_dir() and path != entry for path in entry.parent.iterdir())
    assert send(command).code == 0


def test_an_interrupt_inside_a_destructor_is_not_lost(signals: None) -> None:
    """Python prints and forgets what is raised there."""
    interrupts.raise_again()

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        dying = [Dying()]
        dying.clear()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            time.sleep(0.005)

    assert not interrupts.finished(work)


def test_a_signal_after_the_work_is_done_changes_nothing(signals: None) -> None:
    interrupts.raise_again()
    assert interrupts.finished(lambda: None)
    for number in SENT:
        signal.raise_signal(number)


SLOW = """
import sys, time
from magicdec.cli import interrupts
interrupts.exit_at_once()
interrupts.raise_again()
def work():
    print("working", file=sys.stderr, flush=True)
    time.sleep(60)
assert not interrupts.finished(work)
print("held", file=sys.stderr, flush=True)
sys.stdin.readline()
print("all of it", flush=True)
interrupts.leave(7)
print("delivered", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("sent", SENT)
def test_a_process_delivers_before_further_signals_count(sent: signal.Signals) -> None:
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", SLOW], text=True, **streams) as process:
        assert process.stdin and process.stdout and process.stderr
        with contextlib.closing(process.stderr):
            assert process.stderr.readline() == "working\n"
            process.send_signal(sent)
            assert process.stderr.readline() == "held\n"
            for number in SENT:
                process.send_signal(number)
            print(file=process.stdin, flush=True)
            assert process.stderr.readline() == "delivered\n"
            process.send_signal(sent)
            assert process.stdout.read() == "all of it\n"
        assert process.wait() == 7
