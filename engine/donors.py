"""Who has a prompt, or the beginning of one, already: the slots of a cache, a prefill store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.cache import KVCache, Prompt

Ids = NDArray[np.int64]  # [S]


@dataclass(frozen=True, slots=True)
class Offer:
    """The first `length` tokens of a prompt; `whole`: all of them, with its last queries too."""

    length: int
    whole: bool
    #: take(slot, n) puts the K/V of the first n tokens into a slot. It returns how many are
    #: there, fewer than n when the donor finds them damaged, and the prompt's end when it has it.
    take: Callable[[int, int], tuple[int, Prompt | None]]

    def usable(self, prompt: int, wanted: int) -> int:
        """Tokens to take of a prompt of `prompt` tokens whose last `wanted` queries are needed.

        Unless the end is there, the last `wanted` tokens are computed for their queries and logits.
        """
        return prompt if self.whole else max(0, min(self.length, prompt - wanted))


def slot_offers(cache: KVCache, ids: Ids, wanted: int) -> Iterator[Offer]:
    """What the prompts in the slots of `cache` have in common with `ids`."""
    for slot, prompt in enumerate(cache.prompts):
        if prompt is None or not _comparable(cache, len(prompt.tokens), len(ids)):
            continue
        shared = _common_prefix(prompt.tokens, ids)
        whole = shared == len(ids) == len(prompt.tokens) and prompt.queries.shape[2] >= wanted
        yield Offer(shared, whole, partial(_take, cache, slot, prompt if whole else None))


def _take(
    cache: KVCache, source: int, end: Prompt | None, slot: int, length: int
) -> tuple[int, Prompt | None]:
    cache.copy_prefix(source, slot, length)
    return length, end


def _comparable(cache: KVCache, length: int, other: int) -> bool:
    """Dynamic RoPE scaling makes K depend on the prompt's length; only equal ones share then."""
    rope = cache.model.rope
    return length == other or not rope.depends_on_prompt_length(max(length, other))


def _common_prefix(a: Ids, b: Ids) -> int:
    length = min(len(a), len(b))
    differ = np.flatnonzero(a[:length] != b[:length])
    return int(differ[0]) if len(differ) else length
