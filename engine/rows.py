"""One row as the host sees it: what it has said, and whether it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import FinishReason
from magicdec.engine.request import Request
from magicdec.engine.text.streaming import TextStream
from magicdec.engine.text.tokenizer import Tokenizer


class Text(Protocol):
    """What drafts continue: a row, or a row with drafted tokens that nobody has verified yet."""

    @property
    def request(self) -> Request: ...
    @property
    def slot(self) -> int: ...
    @property
    def tokens(self) -> list[int]:
        """Those after the prompt."""

    @property
    def unverified(self) -> int:
        """How many of them, at the end, are drafts."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is known: what was said after a prompt."""

    request: Request
    slot: int
    tokens: list[int]

    @property
    def unverified(self) -> int:
        return 0


class Row:
    """A request in a slot. `tokens` grows until EOS, a stop token or string, or the limit."""

    def __init__(
        self,
        request: Request,
        slot: int,
        config: DecodeConfig,
        tokenizer: Tokenizer,
        eos_ids: Sequence[int],
    ) -> None:
        self.request, self.slot = request, slot
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._limit = config.max_new_tokens
        self._eos = frozenset() if config.ignore_eos else frozenset(eos_ids)
        self._ends = frozenset(config.stop_tokens) | _special(tokenizer, config.stop)
        self._stream = TextStream(tokenizer, config.stop)

    @property
    def remaining(self) -> int:
        return self._limit - len(self.tokens)

    @property
    def unverified(self) -> int:
        return 0

    @property
    def text(self) -> str:
        return self._stream.text

    def take(self, tokens: Sequence[int]) -> tuple[tuple[int, ...], list[str]]:
        """Appends tokens up to the one that ends the row; returns those and the text each gave.

        EOS ends the row before a stop token or string does, and each before the limit.
        """
        texts: list[str] = []
        for token in tokens:
            self.tokens.append(token)
            text = ""
            if token in self._eos:
                self.finish_reason = "eos"
            elif token in self._ends:
                self.finish_reason = "stop"
            else:
                text = self._stream.push(token)
                if self._stream.stopped:
                    self.finish_reason = "stop"
                elif self.remaining == 0:
                    self.finish_reason = "length"
            if self.finish_reason is not None:
                texts.append(text + self._stream.finish())
                break
            texts.append(text)
        return tuple(tokens[: len(texts)]), texts


def _special(tokenizer: Tokenizer, texts: Sequence[str]) -> frozenset[int]:
    """The special tokens of these texts, which decoded text never shows."""
    added = tokenizer.backend.get_added_tokens_decoder().items()
    return frozenset(id for id, token in added if token.special and token.content in texts)
