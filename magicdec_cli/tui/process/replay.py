"""A recorded session in place of an engine: `magicdec tui --demo`, and a fixture for tests."""

from __future__ import annotations

import dataclasses
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.process.link import Listener
from magicdec.cli.tui.process.messages import (
    Command,
    Open,
    Report,
    Run,
    RunBegan,
    RunEnded,
    Stop,
    Tune,
    TuneEnded,
)
from magicdec.cli.tui.process.wire import from_json, to_json

SCHEMA = "magicdec.session/1"
NOT_RECORDED = "this recorded session has no tuning; without --demo the tuner runs"
LONGEST_WAIT = 1.0  # seconds between two reports, whatever was recorded


def demo_file() -> Path:
    return Path(__file__).parents[1] / "data" / "demo.jsonl"


@dataclass(frozen=True, slots=True)
class Moment:
    """A report and when it came, in seconds since the recording began."""

    at: float
    report: Report


def write_recording(path: Path, moments: list[Moment]) -> None:
    """One line per report after a header."""
    lines = [json.dumps({"schema": SCHEMA})]
    for moment in moments:
        value = {"at": round(moment.at, 3), "report": _rounded(to_json(moment.report))}
        lines.append(json.dumps(value, separators=(",", ":")))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_recording(path: Path) -> list[Moment]:
    """Raises ValueError for a file of another version."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    if json.loads(header).get("schema") != SCHEMA:
        raise ValueError(f"{path} is not a {SCHEMA} recording")
    values = map(json.loads, lines)
    return [Moment(value["at"], from_json(value["report"])) for value in values]


class Replay:
    """Plays the recorded runs one after the other, with the settings that they had.

    speed: of the recorded time; 0 plays without waiting.
    """

    def __init__(self, path: Path, speed: float = 1.0) -> None:
        self.speed = speed
        moments = read_recording(path)
        self._opening = [m for m in moments if not hasattr(m.report, "run")]
        numbers = sorted({m.report.run for m in moments if isinstance(m.report, RunBegan)})
        self._runs = [[m for m in moments if getattr(m.report, "run", 0) == n] for n in numbers]
        self._tuning = [m for m in moments if getattr(m.report, "run", 0) < 0]
        self._numbers: dict[int, int] = {}  # recorded number of a run -> the one it is played as
        self._next = 0
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._interrupted = threading.Event()  # wakes what waits: a stop, or the end
        self._stopped: set[int] = set()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, listener: Listener) -> None:
        self._thread = threading.Thread(target=self._play, args=(listener,), daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        if isinstance(command, Stop):
            self._stopped.add(command.run)
            self._interrupted.set()
        else:
            self._commands.put(command)

    def bound(self, settings: Settings) -> Settings | None:
        return _settings(self._runs[self._next % len(self._runs)])

    def close(self) -> None:
        self._closed = True
        self._interrupted.set()
        self._commands.put(None)
        if self._thread is not None:
            self._thread.join(1)

    def _play(self, listener: Listener) -> None:
        while (command := self._commands.get()) is not None:
            match command:
                case Open():
                    for moment in self._paced(self._opening):
                        listener(moment.report)
                case Run():
                    self._run(command.run, listener)
                case Tune():
                    self._tune(command.run, listener)

    def _run(self, number: int, listener: Listener) -> None:
        moments = self._runs[self._next % len(self._runs)]
        self._next += 1
        for moment in self._paced(moments):
            if number in self._stopped:
                listener(RunEnded(number, "stopped"))
                return
            listener(self._renumbered(moment.report, number))

    def _tune(self, number: int, listener: Listener) -> None:
        if not self._tuning:
            listener(TuneEnded(number, "failed", NOT_RECORDED))
        for moment in self._paced(self._tuning):
            if number in self._stopped:
                listener(TuneEnded(number, "stopped"))
                return
            report: Any = moment.report
            listener(dataclasses.replace(report, run=number))

    def _paced(self, moments: list[Moment]) -> Iterator[Moment]:
        before = moments[0].at if moments else 0.0
        self._interrupted.clear()
        for moment in moments:
            wait = min((moment.at - before) * self.speed, LONGEST_WAIT)
            before = moment.at
            if wait > 0:
                self._interrupted.wait(wait)
            if self._closed:
                return
            yield moment

    def _renumbered(self, report: Any, number: int) -> Report:
        self._numbers[report.run] = number
        changed = dataclasses.replace(report, run=number)
        if isinstance(changed, RunBegan) and changed.plain_run is not None:
            plain = self._numbers[changed.plain_run]
            changed = dataclasses.replace(changed, plain_run=plain)
        result: Report = changed
        return result


def _settings(moments: list[Moment]) -> Settings:
    return next(m.report.settings for m in moments if isinstance(m.report, RunBegan))


def _rounded(value: Any) -> Any:
    """Microseconds are enough."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
