"""Real steps of the engine over a small grid of batches, contexts and draft lengths, timed.

One prefill serves all of it: rows are staggered prefixes of one document, and a slot beside theirs
keeps the longest of them, from which they are copied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from magicdec.engine.accept.chain import Greedy
from magicdec.engine.cache.kv import KVCache, Prompt
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.drafters.base import Drafter, SelfDrafter
from magicdec.engine.engine import Engine
from magicdec.engine.errors import ConfigError
from magicdec.engine.events import Event
from magicdec.engine.memory.run_shape import capacity
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.selection import SELECTORS
from magicdec.engine.session import Session
from magicdec.engine.step import speculative_step
from magicdec.engine.text.documents import Document
from magicdec.engine.text.tokenizer import tokenize
from magicdec.engine.views.make import make_view
from magicdec.profiles.costs.step_times import StepTimes

STAGGER = 16  # tokens between the ends of neighbouring rows: near enough to be of one context


def document_ids(session: Session, document: Document, length: int) -> tuple[int, ...]:
    """The first `length` tokens. Raises ConfigError for a document that is shorter."""
    ids = tuple(tokenize(session.tokenizer, document.text, limit=length))
    if len(ids) < length:
        raise ConfigError(
            f"{document.name} has {len(ids):,} tokens, {length:,} are needed; give a longer text"
        )
    return ids


class Rows:
    """An engine whose cache holds `batch` rows of up to `context` tokens of a document.

    Row i has 16·i tokens more than the first, so that rows continue differently. Shorter contexts
    are prefixes of longer ones: whatever is asked for after the longest is copied, not computed.
    """

    def __init__(self, session: Session, document: Document, *, batch: int, context: int) -> None:
        self.model, self.dtype = session.model, session.kv_dtype
        longest = context + STAGGER * (batch - 1)
        self.ids = document_ids(session, document, longest)
        self.engine = Engine(
            self.model, session.tokenizer, session.backend, slots=batch,
            capacity=capacity(DecodeConfig(max_new_tokens=64), longest), chunk=session.chunk,
            kv_dtype=self.dtype, store=session.prefill_store,
        )  # fmt: skip

    def requests(self, batch: int, context: int, *, stagger: int = STAGGER) -> list[Request]:
        ends = [context + stagger * (batch - 1 - i) for i in range(batch)]
        return [Request(f"[:{end}]", self.ids[:end], i) for i, end in enumerate(ends)]

    def forget(self) -> None:
        """Makes the next run prefill anew."""
        self.engine.cache.prompts[:] = [None] * self.engine.cache.rows

    def events(self, requests: list[Request], config: DecodeConfig) -> Iterator[Event]:
        return self.engine.run(requests, replace(config, ignore_eos=True))

    def decode(self, requests: list[Request], config: DecodeConfig) -> RunReport:
        recorder = Recorder()
        for event in self.events(requests, config):
            recorder.add(event)
        return recorder.report()


@dataclass(frozen=True, slots=True)
class Visit:
    """A context with a draft view, and the steps to take there with each batch.

    Before and after each of them comes a plain step: a machine's speed drifts within seconds, but
    hardly between one step and the next.
    """

    context: int
    selector: str
    budget: int
    batches: tuple[int, ...]
    steps: tuple[tuple[int, DraftWeights], ...]  # (γ > 0, weights that draft)
    repeats: int = 1

    @property
    def growth(self) -> int:
        """Tokens that a row gains in it, at most: γ + 1 in a step, one in the plain one after."""
        return 2 + len(self.batches) * (1 + self.repeats * sum(g + 2 for g, _ in self.steps))


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step of `rows` rows. `context` and `entries` are means over rows of what a plain or
    verify pass and a draft step read before the step's own tokens. A speculative step's `plain` is
    the mean of the plain steps before and after it."""

    visit: Visit
    rows: int
    gamma: int
    weights: DraftWeights
    context: float
    entries: float
    times: StepTimes[float]
    accepted: tuple[int, ...]  # by row

    @property
    def step_s(self) -> float:
        return self.times.step(self.gamma)


@dataclass(frozen=True, slots=True)
class SelectSample:
    """The selection of one row."""

    selector: str
    budget: int
    context: int
    seconds: float


class StepBench:
    """Holds a cache of `batch` rows of up to `context` tokens of a document.

    Raises OutOfMemoryError when that is not there.
    """

    def __init__(
        self, session: Session, ids: Sequence[int], *, batch: int, context: int, growth: int
    ) -> None:
        self._session, self._model, self._batch, self._growth = (
            session,
            session.model,
            batch,
            growth,
        )
        self._ids = tuple(ids[: context + STAGGER * (batch - 1)])
        session.plan_memory(
            [Request("", self._ids, slot) for slot in range(batch + 1)],
            DecodeConfig(max_new_tokens=growth, budget=max(1, context)), batch + 1,
        )  # fmt: skip
        self._cache = KVCache(
            session.model, session.backend, rows=batch + 1,
            capacity=capacity(DecodeConfig(max_new_tokens=growth), len(self._ids)),
            dtype=session.kv_dtype,
        )  # fmt: skip
        self._kept: dict[tuple[int, int], Prompt] = {}
        self._clock = Clock()

    def prefill(self) -> Iterator[float]:
        """The longest row, into the slot that the others are copied from. Yields the done share."""
        for chunk in prefill(
            self._model, self._cache, self._batch, self._ids, chunk=self._session.chunk,
            store=self._session.prefill_store,
        ):  # fmt: skip
            yield chunk.done / len(self._ids)
        prompt, store = self._cache.prompts[self._batch], self._session.prefill_store
        if store is not None and prompt is not None:
            store.keep(self._cache, self._batch, prompt.tokens, prompt)

    def visit(self, visit: Visit) -> Iterator[StepSample | SelectSample]:
        self._place(visit.context)
        view = make_view(
            self._cache, SELECTORS.create(visit.selector, {}), budget=visit.budget,
            context=len(self._ids), growth=self._growth, gamma=max(g for g, _ in visit.steps),
            clock=self._clock,
        )  # fmt: skip
        drafters: dict[DraftWeights, Drafter] = {}
        for _, weights in visit.steps:
            drafters[weights] = SelfDrafter(self._model, view, weights)
            drafters[weights].prepare()
        for slot in range(max(visit.batches)):
            began = time.perf_counter()
            view.admit(slot)
            took = time.perf_counter() - began
            yield SelectSample(visit.selector, visit.budget, self._cache.lengths[slot], took)
        rows = [self._row(slot) for slot in range(max(visit.batches))]
        usual = drafters[visit.steps[0][1]]
        for batch in sorted(visit.batches, reverse=True):
            before = self._step(visit, rows[:batch], 0, "same", usual)
            yield before
            for gamma, weights in visit.steps * visit.repeats:
                step = self._step(visit, rows[:batch], gamma, weights, drafters[weights])
                after = self._step(visit, rows[:batch], 0, "same", usual)
                plain = (before.step_s + after.step_s) / 2
                yield replace(step, times=replace(step.times, plain=plain))
                yield after
                before = after

    def _place(self, context: int) -> None:
        """Rows of `context` tokens and some more, into the slots of the batch."""
        cache = self._cache
        for slot in range(self._batch):
            ids = self._ids[: context + STAGGER * slot]
            known = self._kept.get((slot, context))
            if known is None:
                for _ in prefill(self._model, cache, slot, ids, chunk=self._session.chunk):
                    pass
                prompt = cache.prompts[slot]
                assert prompt is not None
                self._kept[slot, context] = prompt
            else:
                cache.copy_prefix(self._batch, slot, len(ids))
                cache.prompts[slot], cache.prompt_lengths[slot] = known, len(ids)

    def _row(self, slot: int) -> Row:
        prompt = self._cache.prompts[slot]
        assert prompt is not None
        config = DecodeConfig(max_new_tokens=self._growth, ignore_eos=True)
        row = Row(Request("", (), slot), slot, config, self._session.tokenizer, ())
        row.take([int(prompt.logits.argmax())])
        return row

    def _step(
        self, visit: Visit, rows: list[Row], gamma: int, weights: DraftWeights, drafter: Drafter
    ) -> StepSample:
        slots = [row.slot for row in rows]
        context = sum(self._cache.lengths[s] for s in slots) / len(rows)
        entries = sum(drafter.entries(s) for s in slots) / len(rows)
        self._clock.restart()
        outcomes = speculative_step(
            self._model, self._cache, drafter, Greedy(), rows, [gamma] * len(rows), self._clock
        )
        for row, outcome in zip(rows, outcomes, strict=True):
            row.take(outcome.tokens)
        phases = self._clock.lap()
        rest = phases.commit + phases.other
        times = StepTimes(
            phases.verify + rest, phases.draft / max(1, gamma), phases.verify, phases.select, rest
        )
        accepted = tuple(outcome.accepted for outcome in outcomes)
        return StepSample(visit, len(rows), gamma, weights, context, entries, times, accepted)
