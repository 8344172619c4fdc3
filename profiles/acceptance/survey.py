"""Runs a survey over an engine session."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_spec import LOOKUP, MEASURED_BY, DraftSpec
from magicdec.engine.drafters.base import draft_weights
from magicdec.engine.drafters.make import check_layers
from magicdec.engine.errors import require
from magicdec.engine.events import Event
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.plugins.registry import is_ours
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.selection import selector_of
from magicdec.engine.selectors.base import DynamicSelector, KVSelector, ScoredSelector
from magicdec.engine.session import Session
from magicdec.engine.views.make import make_view, view_capacity
from magicdec.profiles.acceptance.forced import BLOCK, chances, kept, own_cache_chances
from magicdec.profiles.acceptance.rates import AcceptanceCounts
from magicdec.profiles.acceptance.reader import (
    WIDTH,
    Reader,
    SteppingReader,
    TargetReader,
    TracedRow,
    traced_rows,
    unrolled,
)
from magicdec.profiles.acceptance.replay import Kept, Row, lookup_hits, lookup_walk, walk


class Scores:
    """For a cache whose prompts stay as they are: a head of a layer of a row is known by where its
    keys lie."""

    def __init__(self) -> None:
        self._selectors: dict[str, KVSelector] = {}

    def selector(self, drafter: DraftSpec) -> KVSelector:
        """What `selector_of` makes; the same one for the same selector and options."""
        name = repr((drafter.selector, sorted(drafter.selector_options)))
        if name not in self._selectors:
            self._selectors[name] = _remembering(selector_of(drafter))
        return self._selectors[name]


def _remembering(selector: KVSelector) -> KVSelector:
    if not isinstance(selector, ScoredSelector) or not is_ours(type(selector)):
        return selector  # a stranger's gets copies, which say nothing by where they lie
    found: dict[tuple[int, int], Tensor] = {}
    score = selector.score

    def remembered(keys: Tensor, queries: Tensor) -> Tensor:
        place = keys.data_ptr(), keys.shape[1]
        if place not in found:
            found[place] = score(keys, queries)
        return found[place]

    same = copy.copy(selector)
    vars(same)["score"] = remembered  # its dataclass is frozen
    return same


Listener = Callable[[Event], None]
TRACE_GAMMA = 4


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What a drafter would have had accepted, by row; seconds: what finding out took."""

    drafter: DraftSpec
    weights: DraftWeights
    kept: tuple[Kept, ...]
    seconds: float
    texts: tuple[Row, ...] = ()  # of lookup, whose walks follow from the text itself

    @property
    def alpha(self) -> float | None:
        """The share of all tokens that the drafter would have got right."""
        every = np.concatenate(self.kept)
        return float(every.mean()) if len(every) else None

    def walks(self, gamma: int) -> list[AcceptanceCounts]:
        if self.texts:
            return [lookup_walk(row, gamma) for row in self.texts]
        return [walk(row, gamma) for row in self.kept]


def as_run(config: DecodeConfig, drafters: Sequence[DraftSpec]) -> DecodeConfig:
    """Settings of a run that takes as much memory as the survey: one view at a time, unrolled."""
    widest = max(drafters, key=lambda drafter: drafter.budget or 0)
    if widest.budget is not None:
        widest = replace(widest, budget=widest.budget + config.max_new_tokens)
    return config.drafted_by(widest, WIDTH)


class Survey:
    """What the drafters would have had accepted of the rows' text under `config`, whose own γ and
    drafter do not matter.

    All rows are in the cache at once, however many: `Session.plan_memory` with batch = rows and
    the settings of `as_run`.
    """

    def __init__(
        self, session: Session, requests: Sequence[Request], config: DecodeConfig,
        drafters: Sequence[DraftSpec], *, block: int = BLOCK,
    ) -> None:  # fmt: skip
        """Raises ConfigError for a drafter that cannot work."""
        self._session, self._requests, self._config = session, requests, config
        self._drafters, self._block = drafters, block
        for drafter in drafters:
            require(
                not drafter.who.cascades,
                f"draft {drafter.draft} drafts what self does, only sooner, as well accepted; "
                f"give self, and measure the cascade with {MEASURED_BY}",
            )
            draft_weights(config.drafted_by(drafter, 1), session.device, session.dtype)
            view_capacity(
                selector_of(drafter), budget=drafter.budget or 1, context=1, growth=1, gamma=block
            )
        self._rows: list[TracedRow] = []
        self._scores = Scores()
        self.target_seconds = 0.0  # in passes of the target after the run
        self.report: RunReport | None = None  # of the traced run

    @property
    def tracer(self) -> DraftSpec:
        """The drafter that is really run: speculation gives the text sooner where it pays."""
        return max(self._drafters, key=lambda drafter: drafter.budget or 0)

    def trace(self, listen: Listener, gamma: int = TRACE_GAMMA) -> RunReport:
        """The one real run. Raises what `Session.run` raises."""
        recorder = Recorder()
        events = self._session.run(
            self._requests, self._config.drafted_by(self.tracer, gamma),
            batch=len(self._requests),
            observed=max(selector_of(drafter).observed for drafter in self._drafters),
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
        begun, self._scores = time.perf_counter(), Scores()
        target = self._target()
        self.target_seconds = time.perf_counter() - begun
        for drafter in self._drafters:
            begun = time.perf_counter()
            if drafter.draft == LOOKUP:
                texts = tuple(self._texts())
                hits = tuple(map(lookup_hits, texts))
                yield Surveyed(drafter, "same", hits, time.perf_counter() - begun, texts)
                continue
            weights, draft = self._draft(drafter)
            self._session.require_intact()  # a draft model's weights, too
            found = tuple(kept(target, draft))
            yield Surveyed(drafter, weights, found, time.perf_counter() - begun)

    def _texts(self) -> Iterator[Row]:
        for row in self._rows:
            prompt = self._session.cache.prompts[row.slot]
            assert prompt is not None
            yield Row(prompt.tokens.tolist(), row.tokens)

    def _target(self) -> list[Kept]:
        """The target's own chances; greedily emitted tokens are its likeliest."""
        sampling, session = self._config.sampling, self._session
        if sampling.greedy:
            return [np.ones(row.fed) for row in self._rows]
        reader = TargetReader(session.cache, self._rows)
        return chances(session.model, reader, self._rows, sampling)

    def _draft(self, drafter: DraftSpec) -> tuple[DraftWeights, list[Kept]]:
        session, config = self._session, self._config.drafted_by(drafter, 1)
        weights = draft_weights(config, session.device, session.dtype)
        if drafter.who.model is not None:
            own = self._config.drafted_by(drafter, self._block)
            return weights, own_cache_chances(session, self._rows, own, self._block)
        model = session.model
        if (layers := drafter.who.layers) is not None:
            check_layers(model.spec, layers)
            model = model.first(layers)
        reader = self._reader(drafter, model)
        model = model.quantized if weights == "int8" else model
        return weights, chances(model, reader, self._rows, config.sampling)

    def _reader(self, drafter: DraftSpec, model: Decoder) -> Reader:
        """What is chosen once is seen at all tokens at once; the rest is read step by step."""
        cache, rows, selector = self._session.cache, self._rows, self._scores.selector(drafter)
        if not isinstance(selector, DynamicSelector):
            return unrolled(cache, rows, selector, drafter.budget or 1, self._block, model)
        view = make_view(
            cache, selector, budget=drafter.budget or 1, context=max(row.prompt for row in rows),
            growth=self._config.max_new_tokens, gamma=self._block, model=model,
        )  # fmt: skip
        return SteppingReader(cache, view, rows, self._block)
