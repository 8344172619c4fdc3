"""Teacher forcing: what a model says of each token of a text that is given to it.

A block of tokens goes through in one pass; then the target's K/V of the block take the place of
the draft's, by the same commit that ends a step. In a run that happens after each step, so that a
token drafted as the j-th of its step saw the draft's own K/V of j tokens, the target's before
those. Here it is the j-th of its block. This is the survey's one approximation, and blocks as
long as a usual step keep it small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from torch import Tensor

from magicdec.engine.cache import KVCache
from magicdec.engine.config import SamplingConfig
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.sampling import distribution
from magicdec.engine.views.base import DraftView, WholeView
from magicdec.kernels.transfer import to_device
from magicdec.profiles.survey.replay import Kept
from magicdec.profiles.survey.trace import TracedRow

BLOCK = 4  # tokens of a pass; with 8, lengths come out 2% too short at γ = 4


def chances(
    model: Decoder,
    cache: KVCache,
    rows: Sequence[TracedRow],
    sampling: SamplingConfig,
    view: DraftView | None = None,
    block: int = BLOCK,
) -> list[Kept]:
    """The model's probability of each row's tokens after its first: [len(tokens) - 1] each.

    Under greedy decoding that is 1 for the likeliest token and 0 for others. view: what the model
    sees of the cache, all of it if None. Leaves the cache as it was, but for rounding.
    """
    for row in rows:
        cache.lengths[row.slot] = row.prompt
        if view is not None:
            view.admit(row.slot)
    found = [np.empty(row.fed) for row in rows]
    for start in range(0, max(row.fed for row in rows), block):
        active = [i for i, row in enumerate(rows) if row.fed > start]
        counts = [min(block, rows[i].fed - start) for i in active]
        width, slots = max(counts), [rows[i].slot for i in active]
        # Rows that end within the block are filled up; what follows a token does not change it.
        spans = [_span(rows[i].tokens, start, width + 1) for i in active]
        tokens = to_device(spans, model.device)  # [n, width + 1]
        with _kept(cache, slots, width, isinstance(view, WholeView)):
            seen = WholeView(cache) if view is None else view
            access = seen.access(slots, [0] * len(slots), width)
            logits = model.forward(tokens[:, :-1], access)  # [n, width, V]
        of_tokens = _chances(logits, tokens[:, 1:], sampling).cpu().numpy()
        for i, count, values in zip(active, counts, of_tokens, strict=True):
            found[i][start : start + count] = values[:count]
        cache.advance(slots, counts)
        if view is not None:
            view.commit(slots, counts)
    return found


def kept(target: Sequence[Kept], draft: Sequence[Kept]) -> list[Kept]:
    """What each token's chance of being an accepted draft is, see `replay`.

    Rounding may put a token that was drawn at the edge of top-k or top-p just outside: p is 0 then.
    """
    least = np.finfo(np.float64).tiny
    return [np.minimum(1.0, q / np.maximum(p, least)) for p, q in zip(target, draft, strict=True)]


def _span(tokens: Sequence[int], start: int, width: int) -> list[int]:
    part = list(tokens[start : start + width])
    return part + part[-1:] * (width - len(part))


def _chances(logits: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
    """logits [n, T, V], tokens [n, T] -> float64 [n, T]."""
    if sampling.greedy:
        return (logits.argmax(dim=-1) == tokens).double()
    return distribution(logits, sampling).gather(2, tokens[..., None])[..., 0].double()


@contextmanager
def _kept(cache: KVCache, slots: Sequence[int], width: int, shared: bool) -> Iterator[None]:
    """Takes back what a draft that shares the full cache wrote to it: nothing verifies it here."""
    if not shared:
        yield
        return
    places = [(slot, slice(cache.lengths[slot], cache.lengths[slot] + width)) for slot in slots]
    saved = [
        (store[:, slot, :, span], store[:, slot, :, span].clone())
        for store in (cache.k, cache.v)
        for slot, span in places
    ]
    try:
        yield
    finally:
        for place, before in saved:
            place.copy_(before)
