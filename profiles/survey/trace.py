"""The rows' text, with its K/V left in the cache by the run that decoded it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from magicdec.engine.cache import KVCache
from magicdec.engine.request import Request


@dataclass(frozen=True, slots=True)
class TracedRow:
    """slot: where the cache holds the prompt and, after it, all tokens but the last."""

    slot: int
    request: Request
    tokens: tuple[int, ...]

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.tokens)

    @property
    def fed(self) -> int:
        """Tokens that a pass over the row is fed: each is followed by one that is known."""
        return len(self.tokens) - 1


def traced_rows(
    cache: KVCache, requests: Sequence[Request], outputs: Sequence[Sequence[int]]
) -> list[TracedRow]:
    """Finds the rows of a run in its cache, which must have had a slot for each of them.

    Rows with the same prompt may swap slots. Greedy ones are equal anyway; of sampled ones
    `forced` computes the K/V anew.
    """
    slots = [slot for slot, prompt in enumerate(cache.prompts) if prompt is not None]
    rows = []
    for request, tokens in zip(requests, outputs, strict=True):
        slot = next(slot for slot in slots if _holds(cache, slot, request))
        slots.remove(slot)
        rows.append(TracedRow(slot, request, tuple(tokens)))
    return sorted(rows, key=lambda row: row.slot)  # neighbours can share an attention call


def _holds(cache: KVCache, slot: int, request: Request) -> bool:
    prompt = cache.prompts[slot]
    return prompt is not None and np.array_equal(prompt.tokens, request.tokens)
