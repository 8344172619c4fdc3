"""Reuses K/V of shared prompt prefixes: other slots, or stored prefills, that begin alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.cache.kv import KVCache, Prompt

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


#: Tokens per stored block: few enough that a prefix wastes little, many enough for long reads.
BLOCK = 128


def kind_of(cache: KVCache, identity: str) -> dict[str, str | int]:
    """What decides about K and V besides the tokens, as plain data.

    identity: of the weights. The attention backend and the device count for their rounding, so
    that choosing another one is not answered with the numbers of the first.
    """
    return {
        "identity": identity,
        "block": BLOCK,
        "dtype": str(cache.model.dtype).removeprefix("torch."),
        "kv_dtype": str(cache.k.dtype).removeprefix("torch."),
        "attention": cache.backend.name,
        "device": cache.model.device.type,
    }


class Chain:
    """Keys of one prompt: `blocks`, one per whole block, and `end`, for what follows them.

    A key hashes its tokens and the key before it, so prompts that begin alike share their first
    keys. The first one starts from `group`, the hash of the kind.
    """

    def __init__(self, kind: Mapping[str, str | int], cache: KVCache, ids: Ids) -> None:
        link = _hash(json.dumps(kind, sort_keys=True).encode())
        self.group = link.hex()
        if cache.model.rope.depends_on_prompt_length(len(ids)):  # then only equal lengths share
            link += len(ids).to_bytes(8, "little")
        self.blocks: list[str] = []
        tokens = ids.astype("<i8")
        whole = len(tokens) - len(tokens) % BLOCK
        for start in range(0, whole, BLOCK):
            link = _hash(link + tokens[start : start + BLOCK].tobytes())
            self.blocks.append(link.hex())
        self.end = _hash(link + b"end" + tokens[whole:].tobytes()).hex()


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
