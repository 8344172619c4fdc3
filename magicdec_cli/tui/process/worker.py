"""The engine's process: commands come in on stdin, reports leave on stdout, as JSON lines.

A process and not a thread: torch holds the interpreter's lock long enough to make keys lag. It
ends when its stdin does, so that no engine outlives an app that was killed.
"""

from __future__ import annotations

import _thread
import contextlib
import dataclasses
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, BinaryIO

from magicdec.cli import session_api
from magicdec.cli.output.console import one_line
from magicdec.cli.output.live_state import PLAIN, SPECULATIVE
from magicdec.cli.output.numbers import choice
from magicdec.cli.run.session import run_info
from magicdec.cli.run.trees import with_shape
from magicdec.cli.settings.knobs import KNOBS, Settings
from magicdec.cli.tui.process.messages import (
    Checking,
    Command,
    Failed,
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
from magicdec.cli.tui.process.wire import decode, encode
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import MagicdecError
from magicdec.engine.events import Event, RowStarted, StepFinished
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.profiles.machine.other_programs import OthersLoad, with_parent
from magicdec.profiles.machine.steadiness import beside

if TYPE_CHECKING:
    from magicdec.profiles.tuning.verifying import Watch


def run_config(
    settings: Settings, environment: Mapping[str, object], requests: Sequence[Request]
) -> tuple[DecodeConfig, tuple[str, ...]]:
    """As `magicdec run` has it: with a tree's shape and the prices of a γ that changes, by this
    machine's calibration where one holds; and a line about each."""
    from magicdec.cli.run.gamma import with_calibration  # numpy

    config, shape = with_shape(settings.decode_config(), settings, environment, requests)
    config = with_calibration(config, settings, environment, requests)
    policy = config.gamma_policy
    how = "" if policy == FIXED else f"γ {policy.name}: {choice(policy)}"
    return config, tuple(line for line in (shape, how) if line)


def plain_key(settings: Settings) -> str:
    """Equal for settings that decode the same plain tokens: those that differ in drafting alone."""
    drafting: dict[str, Any] = {k.name: k.default for k in KNOBS if k.group == "Speculation"}
    return repr(dataclasses.replace(settings, gamma_policy=FIXED.name, **drafting))


MOST_ROWS = 16  # whose text is on a screen; spelling more would only take time from the run

#: Of a token and those after it: what the latter say.
Spell = Callable[[int, Sequence[int]], str]


class Rejections:
    """Of one pass, fed with all its events."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        self._last: dict[int, int] = {}  # token of each row

    def of(self, event: Event) -> tuple[tuple[int, str], ...]:
        """Row and text, for the rows of a step that had something rejected."""
        if isinstance(event, RowStarted):
            self._last[event.row] = event.token
        if not isinstance(event, StepFinished):
            return ()
        found = []
        for share in event.rows:
            if share.rejected and share.row < MOST_ROWS:
                before = (self._last[share.row], *share.tokens)[: share.accepted + 1][-1]
                found.append((share.row, self._spell(before, share.rejected)))
            self._last[share.row] = share.tokens[-1]
        return tuple(found)


LOADING_INTERVAL = 0.05  # seconds between two Loading reports about the same thing


class Stopped(Exception):
    """The app asked for it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """A pass of a run, and what other programs took of the CPUs meanwhile."""

    run: int
    report: RunReport
    steps: tuple[StepFinished, ...]
    others: float | None


class Worker:
    """Carries out one command at a time; `stop` may be called from another thread."""

    def __init__(self, send: Callable[[Report], None]) -> None:
        self._send = send
        self._session: session_api.Session | None = None
        self._plain: dict[str, Measured] = {}  # finished plain passes, by plain_key
        self._stopped: set[int] = set()
        self._said: tuple[str, float] = ("", 0.0)
        self._tuning: int | None = None  # that a Stop interrupts
        self._lock = threading.Lock()

    def stop(self, run: int) -> None:
        with self._lock:
            if run == self._tuning and run not in self._stopped:  # once: what follows is the end
                _thread.interrupt_main()
            self._stopped.add(run)

    def handle(self, command: Command) -> None:
        match command:
            case Open():
                self._open(command)
            case Run():
                self._run(command)
            case Tune():
                self._tune(command)
            case Stop():
                self.stop(command.run)

    def _open(self, command: Open) -> None:
        self._session = None  # the old model goes before the new one comes
        self._plain.clear()
        self._sources = command.sources
        try:
            session = session_api.open_session(command.sources, command.settings, self._progress)
            session.load()
            facts = session.facts()
        except Exception as error:
            self._send(Failed(one_line(error)))
            return
        self._session = session
        self._send(Ready(session.environment(), facts.shape, facts.memory_bytes, facts.int8))

    def _progress(self, what: str, share: float | None) -> None:
        before, at = self._said
        now = time.monotonic()
        if what != before or now - at >= LOADING_INTERVAL:
            self._said = (what, now)
            self._send(Loading(what, share))

    def _run(self, command: Run) -> None:
        run = command.run
        warnings: list[str] = []
        try:
            self._stop_if_asked(run)
            ended = self._decode(command, warnings)
        except Stopped:
            return
        except Exception as error:
            ended = RunEnded(run, "failed", one_line(error))
        self._send(dataclasses.replace(ended, warnings=tuple(warnings)))

    def _tune(self, command: Tune) -> None:
        assert self._session is not None, "Tune before Ready"
        from magicdec.cli.tui.process import tuner

        run = command.run
        try:
            outcome = tuner.asked(command.settings, self._sources, command.selectors)
        except MagicdecError as error:
            self._send(TuneEnded(run, "failed", one_line(error)))
            return
        try:
            with self._interruptible(run):
                self._session.tune(outcome, self._reporting(run))
            report = tuner.ended(run, outcome, "finished")
        except (KeyboardInterrupt, Stopped):
            report = tuner.ended(run, outcome, "stopped")
        except Exception as error:
            report = tuner.ended(run, outcome, "failed", one_line(error))
        self._send(report)

    def _reporting(self, run: int) -> Watch:
        said = ("", 0.0)

        def report(what: str, share: float | None) -> None:
            nonlocal said
            now = time.monotonic()
            if what != said[0] or now - said[1] >= LOADING_INTERVAL:
                said = (what, now)
                self._send(TuneStep(run, what, share))

        return report

    @contextlib.contextmanager
    def _interruptible(self, run: int) -> Iterator[None]:
        """A Stop raises KeyboardInterrupt in here, like Ctrl-C in `magicdec tune`: some of a
        tuning's steps take seconds and report nothing meanwhile."""
        with self._lock:
            if run in self._stopped:
                raise Stopped
            self._tuning = run
        try:
            yield
        finally:
            with self._lock:
                self._tuning = None

    def _stop_if_asked(self, run: int) -> None:
        if run in self._stopped:
            # Told before the run is closed: that stores its prompts, which may take a while.
            self._send(RunEnded(run, "stopped"))
            raise Stopped

    def _decode(self, command: Run, warnings: list[str]) -> RunEnded:
        assert self._session is not None, "Run before Ready"
        run, settings = command.run, command.settings
        session = self._session.configured(settings)
        requests = session.requests()
        warnings += session.warnings()
        memory = tuple(session.memory())
        environment = session.environment()
        config, notes = run_config(settings, environment, requests)
        known = None if command.again or not config.gamma else self._plain.get(plain_key(settings))
        info = run_info(settings, environment, requests)
        source = run if known is None else known.run
        self._send(RunBegan(run, settings, info, environment, memory, source, notes))
        if known is None:
            plain = self._pass(session, run, dataclasses.replace(config, gamma=0), PLAIN)
            self._plain[plain_key(settings)] = plain
        else:
            plain = known
        if not config.gamma:
            warnings[:] = session.warnings()  # those of the passes, too
            return RunEnded(run, "finished", steadiness=beside(plain.steps, (), plain.others))
        drafted = self._pass(session, run, config, SPECULATIVE)
        self._send(Checking(run))
        verdict = session.check(plain.report, drafted.report)
        warnings[:] = session.warnings()
        steady = beside(plain.steps, drafted.steps, plain.others, drafted.others)
        return RunEnded(run, "finished", lossless=verdict, steadiness=steady)

    def _pass(
        self, session: session_api.Session, run: int, config: DecodeConfig, title: str
    ) -> Measured:
        recorder, rejections = Recorder(), Rejections(session.spell)
        steps: list[StepFinished] = []
        others: OthersLoad | None = None  # while rows are decoded
        self._send(PassBegan(run, title))
        with closing(session.run(config)) as events:
            for event in events:
                if others is None and isinstance(event, RowStarted):
                    others = OthersLoad(own=with_parent())
                if isinstance(event, StepFinished):
                    steps.append(event)
                recorder.add(event)
                self._send(Happened(run, event, rejections.of(event)))
                self._stop_if_asked(run)
        share = None if others is None else others.share
        return Measured(run, recorder.report(), tuple(steps), share)


def serve(commands: Iterable[bytes], send: Callable[[Report], None]) -> None:
    """Until `commands` end. They are read in a thread, so that a Stop reaches a run."""
    worker, waiting = Worker(send), queue.SimpleQueue[Command]()

    def read() -> None:
        for line in commands:
            command = decode(line)
            if isinstance(command, Stop):
                worker.stop(command.run)
            else:
                waiting.put(command)
        os._exit(0)  # the app has gone; nothing that is under way is wanted any more

    threading.Thread(target=read, daemon=True).start()
    while True:
        worker.handle(waiting.get())


def main() -> None:
    reports: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what libraries print goes to the log, not between the reports

    def send(report: Report) -> None:
        with contextlib.suppress(BrokenPipeError):  # the end of stdin will end this process
            reports.write(encode(report))

    serve(sys.stdin.buffer, send)


if __name__ == "__main__":
    main()
