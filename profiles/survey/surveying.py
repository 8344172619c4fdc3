"""Runs a survey over an engine session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_view import view_capacity
from magicdec.engine.drafter import draft_weights
from magicdec.engine.events import Event
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.selectors.base import SELECTORS, KVSelector
from magicdec.engine.session import Session
from magicdec.profiles.survey.forced import BLOCK, WIDTH, draft_chances, kept, target_chances
from magicdec.profiles.survey.replay import Kept, Walk, walk
from magicdec.profiles.survey.trace import TracedRow, traced_rows
from magicdec.profiles.survey.unrolled import unrolled

Listener = Callable[[Event], None]
TRACE_GAMMA = 4


@dataclass(frozen=True, slots=True)
class Drafter:
    """A way to draft; γ is left open. options: those of the selector."""

    selector: str
    budget: int
    options: Mapping[str, object] = field(default_factory=dict)

    def create(self) -> KVSelector:
        return SELECTORS.create(self.selector, self.options)

    def config(self, base: DecodeConfig, gamma: int) -> DecodeConfig:
        return replace(
            base, selector=self.selector, selector_options=self.options, budget=self.budget,
            gamma=gamma,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a drafter would have had accepted, by row; seconds: what finding out took."""

    drafter: Drafter
    weights: DraftWeights
    kept: tuple[Kept, ...]
    seconds: float

    @property
    def alpha(self) -> float | None:
        """The share of all tokens that the drafter would have got right."""
        every = np.concatenate(self.kept)
        return float(every.mean()) if len(every) else None

    def walks(self, gamma: int) -> list[Walk]:
        return [walk(row, gamma) for row in self.kept]


def as_run(config: DecodeConfig, drafters: Sequence[Drafter]) -> DecodeConfig:
    """Settings of a run that takes as much memory as the survey: one view at a time, unrolled."""
    partial = [drafter for drafter in drafters if not drafter.create().whole]
    widest = max(partial or drafters, key=lambda drafter: drafter.budget)
    roomy = replace(widest, budget=widest.budget + config.max_new_tokens)
    return roomy.config(config, WIDTH)


class Survey:
    """What the drafters would have had accepted of the rows' text under `config`, whose own γ and
    drafter do not matter.

    All rows are in the cache at once, however many: `Session.plan_memory` with batch = rows and
    the settings of `as_run`.
    """

    def __init__(
        self, session: Session, requests: Sequence[Request], config: DecodeConfig,
        drafters: Sequence[Drafter], *, block: int = BLOCK,
    ) -> None:  # fmt: skip
        """Raises ConfigError for a drafter that cannot work."""
        self._session, self._requests, self._config = session, requests, config
        self._drafters, self._block = drafters, block
        for drafter in drafters:
            draft_weights(drafter.config(config, 1), session.device, session.dtype)
            view_capacity(drafter.create(), budget=drafter.budget, context=1, growth=1, gamma=block)
        self._rows: list[TracedRow] = []
        self.target_seconds = 0.0  # in passes of the target after the run
        self.report: RunReport | None = None  # of the traced run

    @property
    def tracer(self) -> Drafter:
        """The drafter that is really run: speculation gives the text sooner where it pays."""
        return max(self._drafters, key=lambda drafter: drafter.budget)

    def trace(self, listen: Listener, gamma: int = TRACE_GAMMA) -> RunReport:
        """The one real run. Raises what `Session.run` raises."""
        recorder = Recorder()
        events = self._session.run(
            self._requests, self.tracer.config(self._config, gamma),
            batch=len(self._requests),
            observed=max(drafter.create().observed for drafter in self._drafters),
        )  # fmt: skip
        with closing(events):
            for event in events:
                recorder.add(event)
                listen(event)
        self.report = recorder.report()
        outputs = [row.token_ids for row in self.report.rows]
        self._rows = traced_rows(self._session.cache, self._requests, outputs)
        return self.report

    def results(self) -> Iterator[Surveyed]:
        """One per drafter, in order, each when it is done; `trace` comes first."""
        begun = time.perf_counter()
        target = self._target()
        self.target_seconds = time.perf_counter() - begun
        for drafter in self._drafters:
            begun = time.perf_counter()
            weights, draft = self._draft(drafter)
            found = tuple(kept(target, draft))
            yield Surveyed(drafter, weights, found, time.perf_counter() - begun)

    def _target(self) -> list[Kept]:
        """The target's own chances; greedily emitted tokens are its likeliest."""
        sampling, session = self._config.sampling, self._session
        if sampling.greedy:
            return [np.ones(row.fed) for row in self._rows]
        return target_chances(session.model, session.cache, self._rows, sampling)

    def _draft(self, drafter: Drafter) -> tuple[DraftWeights, list[Kept]]:
        session, config = self._session, drafter.config(self._config, 1)
        view = unrolled(session.cache, self._rows, drafter.create(), drafter.budget, WIDTH)
        weights = draft_weights(config, session.device, session.dtype)
        model = session.model.quantized if weights == "int8" else session.model
        return weights, draft_chances(model, view, self._rows, config.sampling, self._block)
