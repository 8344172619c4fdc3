"""Runs requests through a batch of slots: prefill, step, retire, admit."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import torch

from magicdec.engine.accept.chain import Proposal, Rule, make_rule
from magicdec.engine.accept.penalties import make_penalties
from magicdec.engine.backlog import Backlog
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import PREFILL_CHUNK, prefill
from magicdec.engine.cache.prefill_store import PrefillStore
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafters.base import DraftCounts
from magicdec.engine.drafters.make import make_drafter, make_tree_rule
from magicdec.engine.events import (
    Event,
    GammaChosen,
    InnerDrafts,
    Loaded,
    PhaseTimes,
    PrefillProgress,
    RowFinished,
    RowStarted,
    RowStep,
    RunFinished,
    StepFinished,
)
from magicdec.engine.gamma.history import History
from magicdec.engine.gamma.policy import Situation
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import finite, require_finite
from magicdec.engine.plugins.key_seal import KeySeal
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.selection import watched_selector
from magicdec.engine.step import speculative_step
from magicdec.engine.text.stops import require_stops
from magicdec.engine.text.tokenizer import Tokenizer
from magicdec.kernels.attention import AttentionBackend


class Engine:
    """A model with a full cache of `slots` rows of `capacity` tokens, stored in `kv_dtype`.

    The cache outlives a run: prompts that are still in it are not prefilled again. A `store` keeps
    them beyond that. It is written when a run has ended or a slot is needed for another prompt, so
    that no step waits for a disk.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        backend: AttentionBackend,
        *,
        slots: int,
        capacity: int,
        chunk: int = PREFILL_CHUNK,
        kv_dtype: torch.dtype | None = None,
        clock: Clock | None = None,
        store: PrefillStore | None = None,
    ) -> None:
        self.model, self.tokenizer, self.chunk, self.store = model, tokenizer, chunk, store
        self.cache = KVCache(model, backend, rows=slots, capacity=capacity, dtype=kv_dtype)
        self.clock = clock or Clock()

    def run(
        self, requests: Sequence[Request], config: DecodeConfig, draft: Decoder | None = None,
        *, observed: int = 0, loaded: float = 0.0,
    ) -> Generator[Event, None, None]:  # fmt: skip
        """Decodes every request; see `events` for what it yields, and when.

        draft: the model that `config.draft` names, where it names one.
        observed: how many of a prompt's last queries to keep at least, for selectors that
        look at the cache later.
        loaded: seconds that what this run needs was prepared for before, the engine itself too.
        Closing the iterator between two events stops the run; nothing is left behind but the
        prompts in the cache. Raises ConfigError for a selector or draft that cannot be used.
        """
        self.clock.restart()
        with self.clock.phase("load"):
            run = _Run(self, requests, config, draft, observed)
        ended = False
        try:
            yield from run.events(PhaseTimes(load=loaded))
            ended = True
        finally:  # whoever stops a run does not want to wait for others
            self._forget_altered()
            self._store_prompts(patient=ended)

    def _forget_altered(self) -> None:
        """Rows that a stranger wrote into must serve no other run."""
        seal, self.cache.seal = self.cache.seal, None
        for slot in [] if seal is None else seal.broken():
            self.cache.prompts[slot] = None

    def _store_prompts(self, *, patient: bool) -> None:
        if self.store is not None:
            for slot, prompt in enumerate(self.cache.prompts):
                if prompt is not None:
                    self.store.keep(self.cache, slot, prompt.tokens, prompt, patient=patient)


class _Run:
    """The state of one `Engine.run`."""

    def __init__(
        self, engine: Engine, requests: Sequence[Request], config: DecodeConfig,
        draft: Decoder | None, observed: int,
    ) -> None:  # fmt: skip
        self.engine, self.config = engine, config
        require_stops(config.stop_tokens, engine.model.spec.vocab_size)
        self.model, self.cache, self.clock = engine.model, engine.cache, engine.clock
        self.waiting = deque(requests)
        self.active: list[Row] = []
        self.penalties = make_penalties(
            config.sampling, slots=self.cache.rows, vocabulary=self.model.spec.vocab_size,
            device=self.model.device,
        )  # fmt: skip
        self.drafter = make_drafter(
            self.cache, config, draft, context=max(len(r.tokens) for r in requests),
            chunk=engine.chunk, clock=engine.clock, penalties=self.penalties,
        )  # fmt: skip
        if self.drafter is not None:
            self.drafter.prepare()
        watched = watched_selector(config)
        self.cache.seal = None if watched is None else KeySeal(self.cache.k, watched)
        self.observed = max(observed, 0 if self.drafter is None else self.drafter.observed)
        self.rule = self._rule()
        self.rule.penalties = self.penalties
        self.backlog = Backlog(self.drafter, self.clock)
        self.history = History()
        self.gamma: int | None = None  # that the policy chose last

    def _rule(self) -> Rule:
        config, device = self.config, self.model.device
        slots, positions = self.cache.rows, config.max_new_tokens + config.gamma + 1
        if config.drafts_trees:
            return make_tree_rule(config, slots=slots, positions=positions, device=device)
        return make_rule(config.sampling, slots=slots, positions=positions, device=device)

    def events(self, before: PhaseTimes) -> Iterator[Event]:
        total = before + self.clock.lap()
        yield Loaded(total.load)
        step = 0
        while self.waiting or self.active:
            yield from self._admit()
            rows = list(self.active)
            if not rows:
                total += self.clock.lap()
                continue
            step += 1
            yield from self._choose(step, rows)
            # What a row drafts past its limit would be thrown away.
            drafted = [min(self.gamma or 0, row.remaining - 1) for row in rows]
            if any(drafted):
                self.backlog.settle(rows)
            waited = self.clock.lap()
            shares = self._step(rows, drafted)
            phases = self.clock.lap()
            total += waited + phases
            # Where a row ended inside its draft, nobody was rejected.
            asked = [
                n if len(share.tokens) > share.accepted else share.accepted
                for n, share in zip(drafted, shares, strict=True)
            ]
            accepted = [share.accepted for share in shares]
            self.history.add(max(drafted), asked, accepted, phases.wall)
            yield StepFinished(step, max(s.depth + s.cut for s in shares), shares, phases, waited)
            yield from self._retire()
        yield self._finished(total + self.clock.lap())

    def _choose(self, step: int, rows: list[Row]) -> Iterator[GammaChosen]:
        """Asks the policy for γ; says so where it changes."""
        before, count = self.gamma, len(rows)
        context = sum(self.cache.lengths[row.slot] for row in rows) / count
        self.gamma = self.config.gamma_policy.gamma(
            Situation(
                self.config.gamma, count, context, sum(row.remaining for row in rows) / count,
                self.backlog.unprepared(rows), self.history,
            )
        )  # fmt: skip
        if self.gamma != before:
            yield GammaChosen(step, count, round(context), self.gamma)

    def _finished(self, phases: PhaseTimes) -> RunFinished:
        counts = DraftCounts() if self.drafter is None else self.drafter.counts
        read = counts.entries_read / counts.passes if counts.passes else 0.0
        if not self.config.who.cascades or self.config.gamma == 0:
            return RunFinished(phases, read)
        inner = InnerDrafts(counts.passes, counts.inner_drafted, counts.inner_accepted)
        return RunFinished(phases, read, inner)

    def _step(self, rows: list[Row], drafted: list[int]) -> tuple[RowStep, ...]:
        drafter = self.drafter if any(drafted) else None
        outcomes = speculative_step(
            self.model, self.cache, drafter, self.rule, rows, drafted, self.clock
        )
        if drafter is None:
            self.backlog.skip([row.slot for row in rows], [1] * len(rows))
        shares = []
        for row, outcome in zip(rows, outcomes, strict=True):
            tokens, texts = row.take(outcome.tokens)
            share = RowStep(
                row.request.row, tokens, "".join(texts), outcome.drafted, outcome.accepted,
                len("".join(texts[: outcome.accepted])), outcome.tree, outcome.rejected,
            )  # fmt: skip
            shares.append(share if len(tokens) == len(outcome.tokens) else _ended(share))
        return tuple(shares)

    def _admit(self) -> Iterator[Event]:
        """Prefills waiting requests into free slots, the longest first: it serves the others."""
        taken = {row.slot for row in self.active}
        free = [slot for slot in range(self.cache.rows) if slot not in taken]
        batch = [self.waiting.popleft() for _ in range(min(len(free), len(self.waiting)))]
        if not batch:
            return
        with self.clock.phase("prefill"):
            placed = self._place(batch, free)
            yield from self._prefill(sorted(placed, key=lambda p: -len(p[0].tokens)))
            for request, slot in placed:
                yield self._start(request, slot)
        self.active.sort(key=lambda row: row.slot)  # neighbours can share an attention call
        yield from self._retire()

    def _place(self, batch: list[Request], free: list[int]) -> list[tuple[Request, int]]:
        """Gives each request a slot, its old one when that still holds its prompt."""
        held = {
            tuple(prompt.tokens.tolist()): slot
            for slot in free
            if (prompt := self.cache.prompts[slot]) is not None
        }
        slots = {r.row: held.pop(r.tokens) for r in batch if r.tokens in held}
        rest = iter([slot for slot in free if slot not in slots.values()])
        return [(r, slots[r.row] if r.row in slots else next(rest)) for r in batch]

    def _prefill(self, placed: list[tuple[Request, int]]) -> Iterator[PrefillProgress]:
        total = sum(len(request.tokens) for request, _ in placed)
        done, reused = 0, 0  # of the requests before the current one
        begun = self.clock.now()
        for request, slot in placed:
            if self.cache.seal is not None:
                self.cache.seal.forget(slot)
            for chunk in prefill(
                self.model, self.cache, slot, request.tokens,
                chunk=self.engine.chunk, observed=self.observed, store=self.engine.store,
            ):  # fmt: skip
                yield PrefillProgress(
                    row=request.row,
                    row_done=chunk.done,
                    row_total=len(request.tokens),
                    done=done + chunk.done,
                    total=total,
                    reused=reused + chunk.reused,
                    seconds=self.clock.now() - begun,
                )
            done += chunk.done
            reused += chunk.reused

    def _start(self, request: Request, slot: int) -> RowStarted:
        """The row's first token comes from the prefill's logits; then it joins the batch."""
        row = Row(request, slot, self.config, self.engine.tokenizer, self.model.spec.eos_ids)
        prompt = self.cache.prompts[slot]
        assert prompt is not None
        require_finite([bool(finite(prompt.logits))], "the model", self.model.dtype)
        self.rule.admit(slot, request.row)
        self.rule.begin([slot], [0], [0])
        nothing = Proposal(torch.empty(1, 0, dtype=torch.int64, device=self.model.device))
        logits = self.rule.penalised([row], prompt.logits[None, None], [])
        first = int(self.rule.accept(nothing, logits).next)
        _, texts = row.take([first])
        self.backlog.admit(slot)
        if self.cache.seal is not None:
            self.cache.seal.admit(slot, self.cache.lengths[slot])
        self.active.append(row)
        return RowStarted(request.row, request.document, len(request.tokens), first, texts[0])

    def _retire(self) -> Iterator[RowFinished]:
        """Finished rows leave the batch; their slot is free for a waiting request."""
        ended = [row for row in self.active if row.finish_reason is not None]
        self.active = [row for row in self.active if row.finish_reason is None]
        for row in ended:
            assert row.finish_reason is not None
            if self.cache.seal is not None:
                self.cache.seal.check(row.slot)
            yield RowFinished(row.request.row, row.finish_reason, tuple(row.tokens), row.text)


def _ended(share: RowStep) -> RowStep:
    """The share of a row that ended among the draft tokens that the target confirmed."""
    accepted, tree = len(share.tokens), share.tree
    if tree is not None:
        tree = replace(tree, tried=tree.tried[:accepted])
    return replace(share, accepted=accepted, cut=share.depth - accepted, tree=tree, rejected=())
