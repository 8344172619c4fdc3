"""Another model that drafts: standard speculative decoding, or the same over a bounded cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from magicdec.engine.cache.kv import KVCache, KVStore
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.drafters.base import StepwiseDrafter
from magicdec.engine.memory.plan import DraftRoom
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import rounding
from magicdec.engine.rows import Text
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.views.base import DraftView
from magicdec.engine.views.compact import DetachedView
from magicdec.engine.views.make import make_view
from magicdec.kernels.transfer import to_device


class ModelDrafter(StepwiseDrafter):
    """A model of the same vocabulary with a cache of its own (Leviathan et al., arXiv 2211.17192).

    Its cache stays one token behind the target's, and each draft begins with a pass over two: the
    target's last and the pending one. So it does not matter that the draft before never saw its
    own last token, which counts once all γ are accepted. Nor does it in a cascade, for what the
    self-draft accepted: there those two are the last of the draft so far.
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
                growth=config.max_new_tokens, gamma=room.scratch, clock=clock,
            )  # fmt: skip
        # In a cascade the self-draft says when a draft ends.
        stop = None if config.who.cascades else config.gamma_policy.stop
        super().__init__(model, view, weights, stop)

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

    def catch_up(self, rows: Sequence[Text], counts: Sequence[int]) -> None:
        """Feeds the model what was said without it, as far as its cache follows: all but one."""
        left = [(row, count) for row, count in zip(rows, counts, strict=True) if count]
        while left:
            slots = [row.slot for row, _ in left]
            width = min(self._room.scratch, max(count for _, count in left))
            fed = [_span(row, count + 2, width) for row, count in left]
            access = self._view.access(slots, [0] * len(slots), width)
            with rounding(self.watched.who, self._model.dtype):
                self._model.forward(self._known(fed), access, last_only=True)
            self.commit(slots, [min(width, count) for _, count in left])
            left = [(row, count - width) for row, count in left if count > width]

    def _first(self, rows: Sequence[Text], pending: Tensor) -> Tensor:
        return self._known([_span(row, 2, 2) for row in rows])

    def _known(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Padding beyond the vocabulary, which a smaller embedding may lack, means nothing."""
        spec = self._full.spec
        return to_device(tokens, self._full.device).clamp(max=spec.vocab_size - 1)

    def _logits(self, logits: Tensor) -> Tensor:
        missing = self._target.model.spec.vocab_size - logits.shape[-1]
        return pad(logits, (0, missing), value=-torch.inf)  # cuts where it is negative


def _span(row: Text, back: int, width: int) -> list[int]:
    """`width` tokens of the row's text, from `back` before its end on; then zeros."""
    known = (*row.request.tokens[-back:], *row.tokens)[-back:][:width]
    return [*known, *[0] * (width - len(known))]
