"""What stored prefills are called: by everything that their K and V depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b

from magicdec.engine.cache import KVCache
from magicdec.engine.donors import Ids

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
