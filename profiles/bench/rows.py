"""Rows of one long document, of any batch and context, from a single prefill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.engine import Engine
from magicdec.engine.events import Event
from magicdec.engine.loading.opening import open_checkpoint
from magicdec.engine.memory import capacity
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import read_documents
from magicdec.engine.text.tokenizing import tokenize

STAGGER = 16  # tokens between the ends of neighbouring rows: near enough to be of one context


class Rows:
    """An engine whose cache holds `batch` rows of up to `context` tokens of a document.

    Row i has 16·i tokens more than the first, so that rows continue differently. Shorter contexts
    are prefixes of longer ones: whatever is asked for after the longest is copied, not computed.
    """

    def __init__(
        self, model: str, document: str, *, batch: int, context: int, kv_dtype: str = "auto"
    ) -> None:
        self.checkpoint = open_checkpoint(model)
        session = open_session(model, kv_dtype=kv_dtype)
        self.model, self.dtype = session.model, session.kv_dtype
        longest = context + STAGGER * (batch - 1)
        (text,) = read_documents([document])
        self.ids = tuple(tokenize(session.tokenizer, text.text, limit=longest))
        if len(self.ids) < longest:
            raise ValueError(f"{document} has {len(self.ids)} tokens, {longest} are needed")
        self.engine = Engine(
            self.model, session.tokenizer, session.backend, slots=batch,
            capacity=capacity(DecodeConfig(max_new_tokens=64), longest), kv_dtype=self.dtype,
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
