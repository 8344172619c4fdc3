"""Runs requests through a batch of slots: prefill, step, retire, admit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch

from magicdec.engine.acceptance import Proposal, Rule, make_rule
from magicdec.engine.cache import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafting import make_drafter
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
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.prefill import PREFILL_CHUNK, prefill
from magicdec.engine.prefill_store import PrefillStore
from magicdec.engine.request import Request
from magicdec.engine.row import Row
from magicdec.engine.step import speculative_step
from magicdec.engine.text.tokenizer import Tokenizer
from magicdec.engine.trees.making import make_tree_rule
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
        *, observed: int = 0,
    ) -> Iterator[Event]:  # fmt: skip
        """Decodes every request; see `events` for what it yields, and when.

        draft: the model that `config.draft` names, where it names one.
        observed: how many of a prompt's last queries to keep at least, for selectors that
        look at the cache later.
        Closing the iterator between two events stops the run; nothing is left behind but the
        prompts in the cache. Raises ConfigError for a selector or draft that cannot be used.
        """
        self.clock.restart()
        with self.clock.phase("prefill"):  # all that comes before the first token
            run = _Run(self, requests, config, draft, observed)
        try:
            yield from run.events()
        finally:
            self._store_prompts()

    def _store_prompts(self) -> None:
        if self.store is not None:
            for slot, prompt in enumerate(self.cache.prompts):
                if prompt is not None:
                    self.store.keep(self.cache, slot, prompt.tokens, prompt)


class _Run:
    """The state of one `Engine.run`."""

    def __init__(
        self, engine: Engine, requests: Sequence[Request], config: DecodeConfig,
        draft: Decoder | None, observed: int,
    ) -> None:  # fmt: skip
        self.engine, self.config = engine, config
        self.model, self.cache, self.clock = engine.model, engine.cache, engine.clock
        self.waiting = deque(requests)
        self.active: list[Row] = []
        self.drafter = make_drafter(
            self.cache, config, draft, context=max(len(r.tokens) for r in requests),
            chunk=engine.chunk, clock=engine.clock,
        )  # fmt: skip
        self.observed = max(observed, 0 if self.drafter is None else self.drafter.observed)
        self.rule = self._rule()
        self.entries_read, self.draft_steps = 0, 0

    def _rule(self) -> Rule:
        config, device = self.config, self.model.device
        slots, positions = self.cache.rows, config.max_new_tokens + config.gamma + 1
        if config.drafts_trees:
            return make_tree_rule(config, slots=slots, positions=positions, device=device)
        return make_rule(config.sampling, slots=slots, positions=positions, device=device)

    def events(self) -> Iterator[Event]:
        total = PhaseTimes()
        step = 0
        while self.waiting or self.active:
            yield from self._admit()
            total += self.clock.lap()
            if not self.active:
                continue
            rows = list(self.active)
            shares = self._step(rows)
            step += 1
            phases = self.clock.lap()
            total += phases
            yield StepFinished(step, max(s.depth for s in shares), shares, phases)
            yield from self._retire()
        read = self.entries_read / self.draft_steps if self.draft_steps else 0.0
        yield RunFinished(total + self.clock.lap(), read)

    def _step(self, rows: list[Row]) -> tuple[RowStep, ...]:
        # What a row drafts past its limit would be thrown away.
        drafted = [min(self.config.gamma, row.remaining - 1) for row in rows]
        self._count_reads(rows, max(drafted))
        outcomes = speculative_step(
            self.model, self.cache, self.drafter, self.rule, rows, drafted, self.clock
        )
        shares = []
        for row, outcome in zip(rows, outcomes, strict=True):
            tokens, texts = row.take(outcome.tokens)
            chars = len("".join(texts[: outcome.accepted]))
            shares.append(
                RowStep(
                    row.request.row, tokens, "".join(texts), outcome.drafted, outcome.accepted,
                    chars, outcome.tree, outcome.rejected,
                )
            )  # fmt: skip
        return tuple(shares)

    def _count_reads(self, rows: list[Row], gamma: int) -> None:
        if self.drafter is not None and gamma > 0:
            self.entries_read += sum(self.drafter.reads(row.slot, gamma) for row in rows)
            self.draft_steps += gamma * len(rows)

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
            if self.drafter is not None:
                self.drafter.prepare()
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
        self.rule.admit(slot, request.row)
        self.rule.begin([slot], [0], [0])
        nothing = Proposal(torch.empty(1, 0, dtype=torch.int64, device=self.model.device))
        first = int(self.rule.accept(nothing, prompt.logits[None, None]).next)
        _, texts = row.take([first])
        if self.drafter is not None and row.finish_reason is None:
            with self.clock.phase("select"):
                self.drafter.admit(slot)
        self.active.append(row)
        return RowStarted(request.row, request.document, len(request.tokens), first, texts[0])

    def _retire(self) -> Iterator[RowFinished]:
        """Finished rows leave the batch; their slot is free for a waiting request."""
        ended = [row for row in self.active if row.finish_reason is not None]
        self.active = [row for row in self.active if row.finish_reason is None]
        for row in ended:
            assert row.finish_reason is not None
            yield RowFinished(row.request.row, row.finish_reason, tuple(row.tokens), row.text)
