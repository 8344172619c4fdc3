"""Fills a slot of the full cache with a prompt, computing only what no donor holds already.

Truncation property: K and V of the first n tokens are the same for every prompt that begins with
them. Rows cut from one document, questions about one document, or a second run over the same
prompts therefore share what they have in common; so do runs of other days, through a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from magicdec.engine.cache.kv import KEPT_QUERIES, KVCache, Prompt
from magicdec.engine.cache.prefill_store import PrefillStore
from magicdec.engine.cache.reuse import Offer, slot_offers
from magicdec.engine.model.decoder import Decoder

#: Prompt tokens per forward: wide enough to be bound by arithmetic, small enough for its mask.
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Chunk:
    """Progress within one row: tokens in the cache so far, and how many of them were copied."""

    done: int
    reused: int


def prefill(
    model: Decoder,
    cache: KVCache,
    slot: int,
    tokens: Sequence[int],
    *,
    chunk: int,
    observed: int = 0,
    store: PrefillStore | None = None,
) -> Iterator[Chunk]:
    """Leaves `slot` with the prompt's K/V, last queries and last logits; yields as it goes.

    The store, if any, is a donor beside the slots. It gets what the slot held before, and the
    finished part of a prompt whose prefill is broken off.
    """
    ids = np.asarray(tokens, dtype=np.int64)
    wanted = min(max(observed, KEPT_QUERIES), len(ids))
    replaced = cache.prompts[slot]
    if store is not None and replaced is not None and not np.array_equal(replaced.tokens, ids):
        store.keep(cache, slot, replaced.tokens, replaced)
    offers = list(slot_offers(cache, ids, wanted))
    if store is not None:
        offers.append(store.offer(cache, ids, wanted))
    cache.prompts[slot] = None  # until it is whole again
    cache.prompt_lengths[slot] = len(ids)
    shared, end = _accept(offers, slot, len(ids), wanted)
    cache.lengths[slot] = shared
    yield Chunk(shared, shared)
    last = _LastQueries(wanted)
    try:
        for start, stop in _chunks(shared, len(ids), chunk):
            block = torch.from_numpy(ids[start:stop])[None].to(model.device)  # [1, T]
            logits = model.forward(
                block, cache.following([slot], stop - start, observer=last), last_only=True
            )
            cache.advance([slot], [stop - start])
            yield Chunk(stop, shared)
    except BaseException:
        if store is not None:
            store.keep(cache, slot, ids, None)
        raise
    cache.prompts[slot] = end or Prompt(ids, last.stacked(), logits[0, 0])


def _accept(
    offers: Sequence[Offer], slot: int, length: int, wanted: int
) -> tuple[int, Prompt | None]:
    """Takes the best offer: tokens that are now in the slot, and the prompt's end if it was there.

    Without it the last `wanted` tokens remain to be computed.
    """
    best = max(offers, key=lambda offer: offer.usable(length, wanted), default=None)
    if best is None:
        return 0, None
    shared, end = best.take(slot, best.usable(length, wanted))
    return (shared, end) if end is not None else (min(shared, length - wanted), None)


def _chunks(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """Splits [start, stop) into chunks of `size`; the first one takes the remainder."""
    if start == stop:
        return []
    first = start + ((stop - start) % size or size)
    return list(pairwise([start, *range(first, stop, size), stop]))


class _LastQueries:
    """Observer that keeps the last queries of each layer of one row."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._layers: dict[int, Tensor] = {}  # [H, up to w, D]

    def __call__(self, layer: int, q: Tensor) -> None:
        new = q[0, -self._count :].transpose(0, 1)
        missing = self._count - new.shape[1]
        before = self._layers.get(layer)
        if before is not None and missing:
            self._layers[layer] = torch.cat((before[:, -missing:], new), dim=1)
        else:
            self._layers[layer] = new.clone()

    def stacked(self) -> Tensor:
        """[L, H, w, D]"""
        return torch.stack([self._layers[i] for i in range(len(self._layers))])
