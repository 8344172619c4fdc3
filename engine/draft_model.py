"""Another model that drafts: standard speculative decoding, or the same over a bounded cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from magicdec.engine.cache import KVCache, KVStore
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_room import DraftRoom
from magicdec.engine.draft_view import make_view
from magicdec.engine.drafter import StepwiseDrafter
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.prefill import prefill
from magicdec.engine.row import Row
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.views.base import DraftView
from magicdec.engine.views.detached import DetachedView
from magicdec.kernels.transfer import to_device


class ModelDrafter(StepwiseDrafter):
    """A model of the same vocabulary with a cache of its own (Leviathan et al., arXiv 2211.17192).

    Its cache stays one token behind the target's, and each draft begins with a pass over two: the
    target's last and the pending one. So it does not matter that the draft before never saw its
    own last token, which counts once all γ are accepted.
    """

    def __init__(
        self, target: KVCache, model: Decoder, selector: KVSelector, config: DecodeConfig,
        weights: DraftWeights, *, context: int, chunk: int, clock: Clock,
    ) -> None:  # fmt: skip
        room = DraftRoom.of(model.spec, selector, config, rows=target.rows, context=context)
        self._target, self._room = target, room
        self._chunk, self._clock, self._full = chunk, clock, model
        self._cache = KVCache(
            model, target.backend, rows=room.full_rows, capacity=room.full, dtype=target.dtype
        )
        view: DraftView
        if room.view:
            store = KVStore(
                model, target.backend, rows=target.rows, capacity=room.view, dtype=target.dtype
            )
            view = DetachedView(store, self._cache, selector, config.budget)
        else:
            view = make_view(
                self._cache, selector, budget=config.budget, context=room.prompt,
                growth=config.max_new_tokens, gamma=config.gamma + 1, clock=clock,
            )  # fmt: skip
        super().__init__(model, view, weights)

    def admit(self, slot: int) -> None:
        prompt = self._target.prompts[slot]
        assert prompt is not None
        row = 0 if self._room.view else slot
        with self._clock.phase("draft"):
            self._prefill(row, prompt.tokens[-self._room.prompt :][:-1].tolist())
        self._view.admit(slot)

    def _prefill(self, row: int, tokens: Sequence[int]) -> None:
        if tokens:
            for _ in prefill(
                self._full,
                self._cache,
                row,
                tokens,
                chunk=self._chunk,
                observed=self._view.observed,
            ):
                pass
        else:
            self._cache.prompts[row] = None
            self._cache.lengths[row] = self._cache.prompt_lengths[row] = 0

    def commit(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        if not self._room.view:
            self._cache.advance(slots, counts)
        self._view.commit(slots, counts)

    def _first(self, rows: Sequence[Row], pending: Tensor) -> Tensor:
        known = [(*row.request.tokens[-1:], *row.tokens)[-2:] for row in rows]
        # Padding beyond the vocabulary, that a smaller head or embedding may lack, means nothing.
        return to_device(known, pending.device).clamp(max=self._full.spec.vocab_size - 1)

    def _logits(self, logits: Tensor) -> Tensor:
        missing = self._target.model.spec.vocab_size - logits.shape[-1]
        return pad(logits, (0, missing), value=-torch.inf)  # cuts where it is negative
