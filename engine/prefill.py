"""Fills a slot of the full cache with a prompt, computing only what no slot holds already.

Truncation property: K and V of the first n tokens are the same for every prompt that begins with
them. Rows cut from one document, questions about one document, or a second run over the same
prompts therefore share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from magicdec.engine.cache import KVCache, Prompt
from magicdec.engine.model.decoder import Decoder

#: Prompt tokens per forward: wide enough to be bound by arithmetic, small enough for its mask.
PREFILL_CHUNK = 512

#: Queries of the prompt's end that are kept, so that most selectors need no second look.
KEPT_QUERIES = 64


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
) -> Iterator[Chunk]:
    """Leaves `slot` with the prompt's K/V, last queries and last logits; yields as it goes."""
    ids = np.asarray(tokens, dtype=np.int64)
    wanted = min(max(observed, KEPT_QUERIES), len(ids))
    donor, shared = _donor(model, cache, ids, wanted)
    cache.copy_prefix(donor, slot, shared)
    cache.prompt_lengths[slot] = len(ids)
    held = cache.prompts[donor]
    cache.prompts[slot] = None  # until it is whole again
    yield Chunk(shared, shared)
    if shared == len(ids):
        assert held is not None
        cache.prompts[slot] = held
        return
    for start, stop in _chunks(shared, len(ids), chunk, wanted):
        last = _LastQueries(wanted)
        block = torch.from_numpy(ids[start:stop])[None].to(model.device)  # [1, T]
        logits = model.forward(
            block, cache.following([slot], stop - start, observer=last), last_only=True
        )
        cache.advance([slot], [stop - start])
        yield Chunk(stop, shared)
    cache.prompts[slot] = Prompt(ids, torch.stack(last.layers), logits[0, 0])


def _donor(model: Decoder, cache: KVCache, ids: NDArray[np.int64], wanted: int) -> tuple[int, int]:
    """The slot that shares the longest prefix with the prompt, and how much of it to copy.

    Unless the whole prompt and enough of its queries are there, the last `wanted` tokens are
    computed: their queries and the last logits are needed.
    """
    best = (0, 0)
    for slot, prompt in enumerate(cache.prompts):
        if prompt is None or not _comparable(model, len(prompt.tokens), len(ids)):
            continue
        shared = _common_prefix(prompt.tokens, ids)
        whole = shared == len(ids) == len(prompt.tokens) and prompt.queries.shape[2] >= wanted
        best = max(best, (len(ids) if whole else min(shared, len(ids) - wanted), slot))
    shared, slot = best
    return slot, shared


def _comparable(model: Decoder, length: int, other: int) -> bool:
    """Dynamic RoPE scaling makes K depend on the prompt's length; only equal ones share then."""
    rope = model.rope
    return length == other or not rope.depends_on_prompt_length(max(length, other))


def _common_prefix(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    length = min(len(a), len(b))
    differ = np.flatnonzero(a[:length] != b[:length])
    return int(differ[0]) if len(differ) else length


def _chunks(start: int, stop: int, size: int, least_last: int) -> list[tuple[int, int]]:
    """Splits [start, stop) into chunks of `size`; the last one has at least `least_last`."""
    tail = max(start, stop - max(size, least_last))
    edges = [*range(start, tail, size), tail, stop]
    return list(pairwise(edges))


class _LastQueries:
    """Observer that keeps the last queries of each layer of one row, [H, w, D]."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.layers: list[Tensor] = []

    def __call__(self, _layer: int, q: Tensor) -> None:
        self.layers.append(q[0, -self._count :].transpose(0, 1).clone())
