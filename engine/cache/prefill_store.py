"""Prefills kept on disk, so that no prompt is computed twice: one more donor for `prefill`.

A prompt is stored as a chain of blocks, one file each (as in vLLM's prefix caching). Prompts that
begin alike share the files of their common beginning: staggered rows and questions about one
document store it once, and the longest stored prefix is found by walking the chain. What follows
the last whole block, with the last queries and logits, is one more file: the prompt's end.
K and V are stored as they lie in the cache and come back bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

import torch
from torch import Tensor

from magicdec.engine.cache.kv import KVCache, Prompt
from magicdec.engine.cache.prefill_files import PATIENCE, Damaged, PrefillFiles, lock_path
from magicdec.engine.cache.reuse import BLOCK, Chain, Ids, Offer, kind_of
from magicdec.engine.loading.files import one_line
from magicdec.engine.memory.plan import GIB
from magicdec.kernels.cachedir import elsewhere
from magicdec.kernels.locks import Timeout, who


@dataclass(slots=True)
class PrefillStore:
    """The stored prefills of one model; at most `limit` bytes, those of other models included.

    Nothing here fails a run: what cannot be read or written is skipped and told in `warnings`.
    identity: of the weights, see `identity_of`; name: what listings call the model.
    say: hears whom the store waits for.
    """

    identity: str
    name: str
    limit: int
    say: Callable[[str], None] = lambda _what: None
    warnings: list[str] = field(default_factory=list)
    writable: bool = True

    def offer(self, cache: KVCache, ids: Ids, wanted: int) -> Offer:
        """The longest stored prefix of a prompt, with its end if `wanted` queries are there."""
        return _Stored(self, cache, ids).offer(wanted)

    def keep(
        self, cache: KVCache, slot: int, ids: Ids, end: Prompt | None, *, patient: bool = False
    ) -> None:
        """Stores what a slot holds of the prompt `ids`, unless it is stored.

        end: the prompt's end, None for one that is not finished: then only whole blocks are kept.
        patient: no run is going on that would pay for the time in which another process stores.
        """
        if not self.writable:
            return
        stored = _Stored(self, cache, ids)
        lock = lock_path(stored.files.root)
        try:
            stored.keep(slot, end, PATIENCE if patient else 0.0)
        except Timeout:
            self.writable = not patient  # the next prompt would wait in vain, too
            self.warn(
                f"some prefills are not stored: {who(lock)} holds {lock}; "
                "later runs compute them again"
            )
        except OSError as error:
            self.writable = False  # one warning, not one per row
            self.warn(
                f"prefills could not be stored in {stored.files.root} "
                f"({error.strerror or one_line(error)}); {elsewhere(error)}, or use "
                "--no-prefill-cache"
            )

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file to be: the K/V of tokens [start, stop) of a slot, and what an end has besides."""

    key: str
    start: int
    stop: int
    extra: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class _End:
    """An end that was read: K/V of the tokens after the last whole block, and the rest."""

    kv: memoryview
    prompt: Prompt


class _Stored:
    """The files of one prompt, seen from the cache that they are read into or written from."""

    def __init__(self, store: PrefillStore, cache: KVCache, ids: Ids) -> None:
        self.store, self.cache, self.ids = store, cache, ids
        self.kind = kind_of(cache, store.identity)
        chain = Chain(self.kind, cache, ids)
        self.blocks, self.end = chain.blocks, chain.end
        self.files = PrefillFiles(chain.group, store.limit)
        self.token_bytes = cache.model.spec.kv_bytes_per_token(cache.k.dtype.itemsize)

    def offer(self, wanted: int) -> Offer:
        found = 0
        while found < len(self.blocks) and self.files.size(self.blocks[found]):
            found += 1
        end = self._read_end() if found == len(self.blocks) else None
        if end is not None and end.prompt.queries.shape[2] < wanted:
            end = None
        return Offer(found * BLOCK, end is not None, partial(self._take, end))

    def _take(self, end: _End | None, slot: int, length: int) -> tuple[int, Prompt | None]:
        """Reads until `length` tokens are in the slot, or a file is damaged or gone."""
        for start in range(0, min(length, len(self.blocks) * BLOCK), BLOCK):
            block = self._read(self.blocks[start // BLOCK])
            if block is None:
                return start, None
            self._place(block, slot, start, min(length, start + BLOCK), of=BLOCK)
        if end is None:
            self.files.touch(self.blocks[: -(-length // BLOCK)])
            return length, None
        start = len(self.blocks) * BLOCK
        if start < length:
            self._place(end.kv, slot, start, length, of=length - start)
        self.files.touch([*self.blocks, self.end])
        return length, end.prompt

    def _place(self, data: memoryview, slot: int, start: int, stop: int, *, of: int) -> None:
        """Puts stored K/V, which cover `of` tokens from `start` on, into a slot up to `stop`."""
        cache, spec = self.cache, self.cache.model.spec
        flat = torch.frombuffer(data, dtype=cache.k.dtype)
        stored = flat.view(2, spec.layers, spec.kv_heads, of, spec.head_dim)
        for full, part in zip((cache.k, cache.v), stored, strict=True):
            full[:, slot, :, start:stop] = part[:, :, : stop - start]

    def _read_end(self) -> _End | None:
        data = self._read(self.end)
        if data is None:
            return None
        model, spec = self.cache.model, self.cache.model.spec
        kv_bytes = len(self.ids) % BLOCK * self.token_bytes
        flat = torch.frombuffer(data[kv_bytes:], dtype=model.dtype).to(model.device, copy=True)
        queries, logits = flat.split((flat.numel() - spec.vocab_size, spec.vocab_size))
        queries = queries.view(spec.layers, spec.heads, -1, spec.head_dim)  # [L, H, w, D]
        return _End(data[:kv_bytes], Prompt(self.ids, queries, logits))

    def _read(self, key: str) -> memoryview | None:
        try:
            return self.files.read(key)
        except Damaged:
            self.files.drop(key)
            self.store.warn(
                f"a stored prefill was damaged ({self.files.path(key)}); it was dropped, and what "
                "it held is computed again"
            )
            return None

    def keep(self, slot: int, end: Prompt | None, patience: float) -> None:
        fitting = self._fitting(self._parts(self.cache.lengths[slot], end))
        missing = [part for part in fitting if self.files.size(part.key) < self._size(part)]
        if not missing:
            return
        about = {"model": self.store.name, **self.kind}
        with self.files.writing(about, self.store.say, patience):
            keys = [part.key for part in fitting]
            self.files.make_room(sum(map(self._size, missing)), keys)
            for part in missing:
                if self.files.size(part.key) < self._size(part):  # not stored meanwhile
                    self.files.write(part.key, list(self._data(slot, part)))
            self.files.touch(keys)

    def _parts(self, held: int, end: Prompt | None) -> list[_Part]:
        starts = range(0, held - BLOCK + 1, BLOCK)
        parts = [_Part(k, s, s + BLOCK) for k, s in zip(self.blocks, starts, strict=False)]
        if end is not None:
            extra = (end.queries, end.logits)
            parts.append(_Part(self.end, len(parts) * BLOCK, len(self.ids), extra))
        return parts

    def _fitting(self, parts: list[_Part]) -> list[_Part]:
        """The first parts that `limit` has room for."""
        sums = list(accumulate(map(self._size, parts)))
        fitting = [part for part, size in zip(parts, sums, strict=True) if size <= self.files.limit]
        if len(fitting) < len(parts):
            self.store.warn(
                f"a prompt of {len(self.ids):,} tokens takes {sums[-1] / GIB:.2g} GiB to store, "
                f"the prefill cache may hold {self.files.limit / GIB:.2g}: only its beginning is "
                "kept; raise --prefill-cache-size to keep all of it"
            )
        return fitting

    def _size(self, part: _Part) -> int:
        kv = (part.stop - part.start) * self.token_bytes
        return kv + sum(tensor.nbytes for tensor in part.extra)

    def _data(self, slot: int, part: _Part) -> Iterator[memoryview]:
        for full in (self.cache.k, self.cache.v):
            yield _bytes(full[:, slot, :, part.start : part.stop])
        yield from map(_bytes, part.extra)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().cpu().flatten().view(torch.uint8).numpy().data
