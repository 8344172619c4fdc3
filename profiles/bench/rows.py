"""Rows of one long document, of any batch and context, from a single prefill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.engine import Engine
from magicdec.engine.errors import ConfigError
from magicdec.engine.events import Event
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.run_shape import capacity
from magicdec.engine.session import Session
from magicdec.engine.text.documents import Document
from magicdec.engine.text.tokenizing import tokenize

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
