"""A link without an engine: tests say what the engine reports, and see what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from textual.pilot import Pilot

from magicdec.cli.output.live_state import PLAIN, SPECULATIVE, RunInfo
from magicdec.cli.run.trees import tree_text
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.link import Listener
from magicdec.cli.tui.process.messages import (
    Checking,
    Command,
    Happened,
    PassBegan,
    Ready,
    Report,
    Run,
    RunBegan,
    RunEnded,
)
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.events import (
    Event,
    PhaseTimes,
    PrefillProgress,
    RowFinished,
    RowStarted,
    RowStep,
    RunFinished,
    StepFinished,
)
from magicdec.profiles.costs.model import ModelShape

SHAPE = ModelShape("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, True)
ENVIRONMENT = {
    "magicdec": "0.1.0", "model": "smollm2-135m", "device": "cpu", "device_name": "a processor",
    "dtype": "float32", "kv_dtype": "float32", "draft_weights": "int8", "threads": 2,
}  # fmt: skip
SETTINGS = Settings(context=1000, batch=2, max_new_tokens=25)
TEXT = "The parser reads one option after the other and keeps what it does not know."
WORDS = TEXT.split()
READY = Ready(ENVIRONMENT, SHAPE, 16 * 2**30, True)


@dataclass
class ScriptedLink:
    """Records commands; `tell` is the engine speaking."""

    commands: list[Command] = field(default_factory=list)
    listener: Listener | None = None
    starts: int = 0
    closed: bool = False

    def start(self, listener: Listener) -> None:
        self.listener = listener
        self.starts += 1

    def send(self, command: Command) -> None:
        self.commands.append(command)

    def bound(self, settings: Settings) -> Settings | None:
        return None

    def close(self) -> None:
        self.closed = True

    def tell(self, *reports: Report) -> None:
        assert self.listener is not None
        for report in reports:
            self.listener(report)

    @property
    def runs(self) -> list[Run]:
        return [command for command in self.commands if isinstance(command, Run)]


@dataclass
class FakeClock:
    """Stands still unless it is moved."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def info(settings: Settings = SETTINGS) -> RunInfo:
    return RunInfo(
        settings.model, "cpu", "float32", settings.selector, settings.batch,
        settings.context or 1000, settings.budget, settings.gamma, settings.temperature,
        settings.batch, settings.max_new_tokens, gamma_policy=settings.gamma_policy,
        tree=tree_text(settings),
    )  # fmt: skip


def begin(run: int, settings: Settings = SETTINGS, plain_run: int | None = None) -> RunBegan:
    memory = (("weights", 538_000_000), ("full KV cache", 90_000_000))
    source = run if plain_run is None else plain_run
    return RunBegan(run, settings, info(settings), ENVIRONMENT, memory, source)


def plain_events(settings: Settings = SETTINGS) -> Iterator[Event]:
    rows = range(settings.batch)
    yield from _opening(settings)
    for step in range(1, settings.max_new_tokens):
        shares = tuple(RowStep(row, (step,), _word(row, step), 0, 0, 0) for row in rows)
        yield StepFinished(step, 0, shares, PhaseTimes(verify=0.0408, commit=0.0002, other=0.0003))
    yield from _ending(settings, PhaseTimes(prefill=1.5, verify=0.9792))


def speculative_events(settings: Settings = SETTINGS) -> Iterator[Event]:
    """Steps accept γ, γ - 1, ..., 0 tokens in turn, shifted by the row."""
    rows = range(settings.batch)
    yield from _opening(settings, reused=True)
    done = dict.fromkeys(rows, 1)
    total, step = PhaseTimes(prefill=0.1, select=0.03), 0
    while any(count < settings.max_new_tokens for count in done.values()):
        shares = []
        for row in rows:
            left = settings.max_new_tokens - done[row]
            drafted = min(settings.gamma, left - 1)
            if left:
                accepted = min(max(settings.gamma - (step + row) % 5, 0), drafted)
                ids = tuple(range(done[row], done[row] + accepted + 1))
                text = [_word(row, i) for i in ids]
                chars = len("".join(text[:accepted]))
                wrong = (7,) * (drafted - accepted)
                shares.append(
                    RowStep(row, ids, "".join(text), drafted, accepted, chars, rejected=wrong)
                )
                done[row] += accepted + 1
        step += 1
        phases = PhaseTimes(
            draft=0.0181, verify=0.0462 + step % 3 / 1000, commit=0.0007, other=0.0004
        )
        total += phases
        yield StepFinished(step, max(s.drafted for s in shares), tuple(shares), phases)
    yield from _ending(settings, total)


def a_run(run: int, settings: Settings = SETTINGS, *, plain: bool = True) -> list[Report]:
    """Everything that a run reports, until it has finished."""
    reports: list[Report] = [begin(run, settings, run if plain else 1)]
    if plain:
        reports.append(PassBegan(run, PLAIN))
        reports += [Happened(run, event) for event in plain_events(settings)]
    if settings.gamma:
        reports.append(PassBegan(run, SPECULATIVE))
        reports += [Happened(run, event) for event in speculative_events(settings)]
        reports.append(Checking(run))
    verdict = Losslessness(True) if settings.gamma else None
    return [*reports, RunEnded(run, "finished", lossless=verdict)]


def drive(
    app: TuningApp, steps: Callable[[Pilot[None]], Awaitable[Any]], size: tuple[int, int] = (80, 24)
) -> None:
    """Runs the app headless while `steps` press its keys."""

    async def main() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            await steps(pilot)

    asyncio.run(main())


async def settle(pilot: Pilot[None]) -> None:
    """Until every message, and what it leads to, is handled and drawn."""
    for _ in range(3):
        await pilot.pause()


def screen_text(app: TuningApp) -> list[str]:
    """The lines of the screen as a terminal would show them, trailing spaces cut."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips[:height]]
    assert all(len(line) <= width for line in lines)
    return lines


def text_of(app: TuningApp) -> str:
    return "\n".join(screen_text(app))


def _opening(settings: Settings, reused: bool = False) -> Iterator[Event]:
    context = settings.context or 1000
    total = context * settings.batch
    for done in range(500, total + 1, 500):
        row = min((done - 1) // context, settings.batch - 1)
        copied = done if reused else 0
        yield PrefillProgress(row, done - row * context, context, done, total, copied, done / 800)
    for row in range(settings.batch):
        yield RowStarted(row, "doc.txt", context, 0, _word(row, 0))


def _ending(settings: Settings, phases: PhaseTimes) -> Iterator[Event]:
    ids = tuple(range(settings.max_new_tokens))
    for row in range(settings.batch):
        text = "".join(_word(row, i) for i in ids)
        yield RowFinished(row, "length", ids, text)
    yield RunFinished(phases, 260.0)


def _word(row: int, index: int) -> str:
    return WORDS[(row * 5 + index) % len(WORDS)] + " "
