"""A session without a model: stands in for an opened model in command line tests.

Run as a script it is `magicdec` with the fake installed; FAKE_DELAY is the seconds of one step and
FAKE_SCENE changes what happens (see `FakeSession`).
"""

from __future__ import annotations

import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from magicdec.cli import session_api
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.compare.turns import block_tokens, take_turns
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import ConfigError, ModelError, OutOfMemoryError
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
from magicdec.engine.report import RunReport
from magicdec.engine.selectors.base import KVSelector

PROSE = (
    "The argument parser reads the options one after the other and keeps what it does not know "
    "for later, so that a subcommand can decide about it. Values are converted with the type that "
    "was declared; when that fails, the parser prints a short message naming the argument and "
    "exits with status two.\nSee also the section about abbreviations: an option may be "
    "shortened as long as no other option begins alike. "
)
WORDS = PROSE.split(" ")
SELECTOR = "magicdec_fake:Sparse"


@dataclass
class Sparse(KVSelector):
    """Keeps whatever the test wants."""

    sinks: int = 4

    def select(self, keys: Any, queries: Any, budget: int) -> Any:
        raise AssertionError("listing and checking a selector must not run it")


@dataclass(frozen=True)
class FakeRequest:
    document: str
    tokens: tuple[int, ...]
    row: int


@dataclass(frozen=True)
class FakeDivergence:
    row: int = 1
    position: int = 7
    plain_token: int = 260
    speculative_token: int = 282
    gap: float = 0.0021
    tolerance: float = 0.016
    tie: bool = True


@dataclass(frozen=True)
class FakeLosslessness:
    checked: bool = True
    identical: bool | None = True
    divergences: tuple[FakeDivergence, ...] = ()
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.checked or all(d.tie for d in self.divergences)


@dataclass
class FakeSession:
    """Scenes: tie, differs, interrupt-load, interrupt-first, interrupt-plain, interrupt, document,
    memory, model, crash.
    """

    scene: str = ""
    delay: float = 0.0
    sources: list[str] = field(default_factory=list)
    settings: Settings | None = None  # None: it was not opened
    configs: list[DecodeConfig] = field(default_factory=list)

    def open(
        self, sources: Sequence[str], settings: Settings, progress: Callable[..., None]
    ) -> FakeSession:
        self.sources, self.settings = list(sources), settings
        for percent in range(0, 101, 20):
            progress(f"loading {settings.model}", percent / 100)
            time.sleep(self.delay)
        match self.scene:
            case "interrupt-load":
                raise KeyboardInterrupt
            case "document":
                raise ConfigError("there is no file 'missing.txt'; give a text file")
            case "model":
                raise ModelError(f"no model {settings.model!r}; check the spelling")
            case "crash":
                raise RuntimeError("the weights\nhave fallen over")
        return self

    def requests(self) -> list[FakeRequest]:
        assert self.settings is not None
        context = self.settings.context or 1000
        rows = max(self.settings.batch, len(self.sources))
        self._requests = [
            FakeRequest(Path(self.sources[i % len(self.sources)]).name, (0,) * (context - i), i)
            for i in range(rows)
        ]
        return self._requests

    def warnings(self) -> list[str]:
        return ["a context of 4,000 tokens is beyond the 2,048 the model was trained on"]

    def memory(self) -> list[tuple[str, int]]:
        if self.scene == "memory":
            raise OutOfMemoryError("needs 12 GB, 4 GB are free; batch 2 at context 4000 fits")
        return [("weights", 538_000_000), ("full cache", 720_000_000), ("draft cache", 46_000_000)]

    def environment(self) -> dict[str, object]:
        return {"device": "cpu", "dtype": "float32", "attention": "sdpa", "threads": 2}

    def check(self, plain: RunReport, speculative: RunReport) -> FakeLosslessness:
        if not self.configs[-1].sampling.greedy:
            return FakeLosslessness(False, None, (), "sampling")
        if self.scene == "tie":
            return FakeLosslessness(True, False, (FakeDivergence(),))
        if self.scene == "differs":
            found = (FakeDivergence(), FakeDivergence(0, 3, 11, 12, 4.5, 0.016, False))
            return FakeLosslessness(True, False, found)
        return FakeLosslessness(identical=all(
            a.token_ids == b.token_ids for a, b in zip(plain.rows, speculative.rows, strict=True)
        ))  # fmt: skip

    def compare(self, config: DecodeConfig) -> Iterator[tuple[bool, Event]]:
        runs = [self.run(replace(config, gamma=0)), self.run(config)]
        block = block_tokens(len(self._requests), config.max_new_tokens)
        for number, event in take_turns(runs, block, lambda: lambda: None):
            yield number == 1, event

    def run(self, config: DecodeConfig) -> Iterator[Event]:
        requests = self._requests
        self.configs.append(config)
        yield from self._prefill(requests, shared=len(self.configs) > 1)
        for request in requests:
            text = _word(request.row, 0)
            yield RowStarted(request.row, request.document, len(request.tokens), 0, text)
        dice = random.Random(config.gamma)
        done = {request.row: 1 for request in requests}
        total, step = PhaseTimes(prefill=2.0, select=0.08 if config.gamma else 0.0), 0
        while any(tokens < config.max_new_tokens for tokens in done.values()):
            self._maybe_interrupt(config, step)
            time.sleep(self.delay * (2 if config.gamma else 3))
            left = max(config.max_new_tokens - tokens for tokens in done.values())
            gamma = min(config.gamma, left - 1)
            phases = _phases(gamma, dice)
            total += phases
            shares = [_share(row, n, gamma, config.max_new_tokens, dice) for row, n in done.items()
                      if n < config.max_new_tokens]  # fmt: skip
            yield StepFinished(step, gamma, tuple(shares), phases)
            step += 1
            for share in shares:
                done[share.row] += len(share.tokens)
                if done[share.row] == config.max_new_tokens:
                    yield RowFinished(share.row, "length", *_output(share.row, done[share.row]))
        yield RunFinished(total, 290.5 if config.gamma else 0.0)

    def _prefill(self, requests: Sequence[FakeRequest], shared: bool) -> Iterator[Event]:
        total, done = sum(len(request.tokens) for request in requests), 0
        for request in requests:
            size = len(request.tokens)
            copied = size if shared or request.row else 0
            for part in range(0, size, 500) if not copied else [size - 1]:
                time.sleep(self.delay)
                row_done = min(part + 500, size)
                reused = done if request.row else copied and row_done
                yield PrefillProgress(
                    request.row, row_done, size, done + row_done, total, reused,
                    0.2 * (part + 500) / 500,
                )  # fmt: skip
            done += size

    def _maybe_interrupt(self, config: DecodeConfig, step: int) -> None:
        scene = "interrupt" if config.gamma else "interrupt-plain"
        if (self.scene == scene and step == 2) or self.scene == "interrupt-first":
            raise KeyboardInterrupt


def _word(row: int, index: int) -> str:
    return WORDS[(row * 17 + index) % len(WORDS)] + " "


def _output(row: int, count: int) -> tuple[tuple[int, ...], str]:
    return tuple(range(count)), "".join(_word(row, i) for i in range(count))


def _share(row: int, done: int, gamma: int, limit: int, dice: random.Random) -> RowStep:
    confirmed = 0
    while confirmed < gamma and dice.random() < 0.72:
        confirmed += 1
    tokens = tuple(range(done, min(done + confirmed + 1, limit)))
    accepted = min(confirmed, len(tokens))
    cut = gamma - accepted if len(tokens) <= confirmed else 0
    words = [_word(row, i) for i in tokens]
    chars = sum(len(word) for word in words[:accepted])
    return RowStep(row, tokens, "".join(words), gamma, accepted, chars, cut=cut)


def _phases(gamma: int, dice: random.Random) -> PhaseTimes:
    noise = 1 + dice.random() / 10
    if not gamma:
        return PhaseTimes(verify=0.0412 * noise, commit=0.0003, other=0.0004)
    draft, verify = 0.0071 * gamma * noise, 0.0489 * noise
    return PhaseTimes(draft=draft, verify=verify, commit=0.0009, other=0.0006)


def install(session: FakeSession) -> None:
    """Makes `session` what the command line opens, and SELECTOR a selector that exists."""
    session_api.open_session = session.open  # type: ignore[assignment]
    plugin = types.ModuleType(SELECTOR.partition(":")[0])
    plugin.Sparse = Sparse  # type: ignore[attr-defined]
    sys.modules[plugin.__name__] = plugin


if __name__ == "__main__":
    from magicdec.cli import interrupts
    from magicdec.cli.main import main

    interrupts.exit_at_once()
    interrupts.raise_again()  # as opening an engine does

    install(FakeSession(os.environ.get("FAKE_SCENE", ""), float(os.environ.get("FAKE_DELAY", "0"))))
    os.environ.setdefault("MAGICDEC_SELECTOR", SELECTOR)
    main()
