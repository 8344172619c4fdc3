"""Prompt lookup: what followed the same words earlier in the row's own text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from magicdec.engine.accept.chain import Proposal, Rule
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.drafters.base import Drafter
from magicdec.engine.drafters.ngram import continuation
from magicdec.engine.rows import Text
from magicdec.kernels.transfer import to_device


class LookupDrafter(Drafter):
    """Drafts without a model (prompt lookup decoding; LLMA, arXiv 2304.04487).

    The row's last tokens are searched in all that came before them. A row without a match drafts
    nothing, and a step in which no row drafts is one of plain decoding.
    """

    def __init__(self, cache: KVCache) -> None:
        super().__init__()
        self._cache = cache
        self._texts: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * cache.rows

    def admit(self, slot: int) -> None:
        prompt = self._cache.prompts[slot]
        assert prompt is not None
        self._texts[slot] = prompt.tokens

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        pass

    def entries(self, slot: int) -> int:
        return 0

    def propose(
        self, rows: Sequence[Text], pending: Tensor, most: Sequence[int], rule: Rule
    ) -> Proposal:
        found = [continuation(self._text(row), n) for row, n in zip(rows, most, strict=True)]
        lengths = [len(tokens) for tokens in found]
        width = max(lengths)
        padded = [[*tokens, *[0] * (width - len(tokens))] for tokens in found]
        tokens = to_device(padded, pending.device) if width else pending[:, :0]
        vocabulary = self._cache.model.spec.vocab_size
        return Proposal(tokens, rule.certain(tokens, vocabulary), lengths)

    def _text(self, row: Text) -> NDArray[np.int64]:
        """Prompt and output so far."""
        return np.concatenate((self._texts[row.slot], np.asarray(row.tokens, np.int64)))
