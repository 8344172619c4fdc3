"""Penalties: what a row's text holds already becomes less likely to be said again.

Repetition as in transformers and vLLM: logits of tokens of prompt and output are divided where
they are positive, else multiplied. Frequency and presence as in vLLM and OpenAI's interface: of
tokens of the output alone, so much is subtracted for each time, and so much once. In this order,
before temperature and all that follows; in float32, whatever precision the logits have.

A draft token counts for those behind it, as it would once it is accepted. So the logits of each
position are what plain decoding would have made of them after the same tokens, and everything
that is decided from them stays exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from magicdec.engine.config import SamplingConfig
from magicdec.engine.request import Request
from magicdec.engine.rows import Text
from magicdec.engine.trees.tree import Nodes
from magicdec.kernels.transfer import to_device


class Penalties:
    """Counts on the device what each row's text holds, and follows the texts as they grow."""

    def __init__(
        self, config: SamplingConfig, *, slots: int, vocabulary: int, device: torch.device
    ) -> None:
        self._config, self._device = config, device
        self._prompts = torch.zeros(slots, vocabulary, dtype=torch.bool, device=device)
        self._said = torch.zeros(slots, vocabulary, dtype=torch.int32, device=device)  # how often
        self._known: list[tuple[Request | None, int]] = [(None, 0)] * slots  # tokens counted

    def apply(
        self, rows: Sequence[Text], logits: Tensor, drafted: Sequence[Tensor],
        nodes: Nodes | None = None,
    ) -> Tensor:  # fmt: skip
        """The penalised logits [n, T, V], as float32.

        drafted: tokens [n, ...] that follow the rows' texts. The last logits come after all of
        them, those before after one less each, unless `nodes` says what each one sees: root first,
        then the drafted tokens.
        """
        slots, logits = self._follow(rows), logits.float()
        said, prompts = self._said[slots], self._prompts[slots]  # [n, V]
        found = self._penalised(logits, said[:, None], prompts[:, None])
        ahead, own = self._unverified(rows)
        tokens = torch.cat((ahead, *drafted), dim=1)  # [n, K]
        if not tokens.shape[1]:
            return found
        # Only these differ from the rows' texts, and at each position not all of them are there.
        before = self._before(logits.shape[1], tokens.shape[1] - ahead.shape[1], nodes)
        before = before.expand(len(tokens), -1, -1)
        before = torch.cat((own[:, None].expand(-1, before.shape[1], -1), before), dim=2)
        same = tokens[:, :, None] == tokens[:, None, :]
        more = (before.float() @ same.float()).int()  # [n, T, K]: how often each is there
        at = tokens[:, None].expand_as(more)
        said_of, prompts_of = (held.gather(1, tokens)[:, None] for held in (said, prompts))
        return found.scatter_(
            2, at, self._penalised(logits.gather(2, at), said_of + more, prompts_of)
        )

    def _penalised(self, logits: Tensor, said: Tensor, prompts: Tensor) -> Tensor:
        config = self._config
        repetition, once = config.repetition_penalty, said > 0
        if repetition != 1.0:
            less = torch.where(logits > 0, logits / repetition, logits * repetition)
            logits = torch.where(prompts | once, less, logits)
        if config.frequency_penalty:
            logits = logits - config.frequency_penalty * said
        if config.presence_penalty:
            logits = logits - config.presence_penalty * once
        return logits

    def _follow(self, rows: Sequence[Text]) -> Tensor:
        """Counts what was said since, and tells the rows' slots."""
        new: list[tuple[int, int]] = []
        for row in rows:
            slot, length = row.slot, len(row.tokens) - row.unverified
            request, counted = self._known[slot]
            if request is not row.request or length < counted:  # another row
                self._admit(row)
                counted = 0
            new += [(slot, token) for token in row.tokens[counted:length]]
            self._known[slot] = row.request, length
        if new:
            at = to_device(new, self._device)
            one = torch.ones(len(new), dtype=torch.int32, device=self._device)
            self._said.index_put_((at[:, 0], at[:, 1]), one, accumulate=True)
        return to_device([row.slot for row in rows], self._device)

    def _admit(self, row: Text) -> None:
        self._said[row.slot] = 0
        if self._config.repetition_penalty != 1.0:
            self._prompts[row.slot] = False
            self._prompts[row.slot, to_device(row.request.tokens, self._device)] = True

    def _unverified(self, rows: Sequence[Text]) -> tuple[Tensor, Tensor]:
        """Drafts at the end of the rows' texts, [n, U], and which of them are a row's own."""
        counts = [row.unverified for row in rows]
        width = max(counts)
        if not width:
            none = torch.empty(len(rows), 0, dtype=torch.int64, device=self._device)
            return none, none.bool()
        drafts = [row.tokens[len(row.tokens) - n :] for row, n in zip(rows, counts, strict=True)]
        tokens = to_device([[*own, *[0] * (width - len(own))] for own in drafts], self._device)
        places = torch.arange(width, device=self._device)
        return tokens, places < to_device(counts, self._device)[:, None]

    def _before(self, positions: int, drafted: int, nodes: Nodes | None) -> Tensor:
        """Which drafted tokens come before each of the logits: bool [n or 1, T, M]."""
        if nodes is not None:
            return nodes.seen[:, :, 1:]
        every = torch.ones(positions, drafted, dtype=torch.bool, device=self._device)
        return every.tril(drafted - positions)[None]


def make_penalties(
    config: SamplingConfig, *, slots: int, vocabulary: int, device: torch.device
) -> Penalties | None:
    """None for settings without any."""
    if not config.penalises:
        return None
    return Penalties(config, slots=slots, vocabulary=vocabulary, device=device)
