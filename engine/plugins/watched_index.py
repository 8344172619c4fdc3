"""A stranger's index over live keys: calls are named where they fail, and writes are noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from magicdec.engine.errors import AlteredError
from magicdec.engine.indexes.base import KeyIndex
from magicdec.engine.plugins.contained import selector_failures
from magicdec.kernels.candidates import Candidates

#: By element size: what every memory can be seen as.
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class WatchedIndex(KeyIndex):
    """Torch counts the writes to a tensor over all its views. Those that go around it, through
    numpy or a pointer, are left to the seal of the rows, see `key_seal`."""

    def __init__(self, index: KeyIndex, selector: str) -> None:
        self._index, self._selector = index, selector

    def admit(self, slot: int, keys: Tensor) -> None:
        with self._watching(keys := fixed(keys), "admit"):
            self._index.admit(slot, keys)

    def extend(self, slot: int, keys: Tensor, first: int) -> None:
        with self._watching(keys := fixed(keys), "extend"):
            self._index.extend(slot, keys, first)

    def choose(
        self, layer: int, queries: Tensor, keys: Tensor, rows: Candidates, budget: int
    ) -> Tensor:
        with self._watching(keys := fixed(keys), "choose"):
            return self._index.choose(layer, queries, keys, rows, budget)

    def tensors(self) -> list[Tensor]:
        with selector_failures(self._selector, "tensors"):
            return self._index.tensors()

    @property
    def nbytes(self) -> int:
        with selector_failures(self._selector, "nbytes"):
            return self._index.nbytes

    @contextmanager
    def _watching(self, keys: Tensor, where: str) -> Iterator[None]:
        before = 0 if keys.is_inference() else keys._version
        try:
            with selector_failures(self._selector, where):
                yield
        finally:
            if not keys.is_inference() and keys._version != before:
                raise AlteredError(altered(self._selector))


def fixed(keys: Tensor) -> Tensor:
    """The same memory in a storage that cannot be resized: keys that were freed end the process."""
    if keys.device.type != "cpu":
        return keys
    return torch.from_numpy(keys.view(BITS[keys.element_size()]).numpy()).view(keys.dtype)


def altered(selector: str) -> str:
    return (
        f"selector {selector} wrote into the keys it was shown, which are the model's own: the "
        "text is no longer plain decoding's; it has to work on copies"
    )
