"""The selector `pqcache`: keys by product quantisation (arXiv 2407.12820)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from magicdec.engine.errors import require
from magicdec.engine.selectors.base import DynamicSelector, Search

if TYPE_CHECKING:
    from magicdec.engine.indexes.base import KeyIndex, KeyShape


@dataclass(frozen=True)
class PQCache(DynamicSelector):
    """PQCache (arXiv 2407.12820): keys by product quantisation, scored by table look-ups.

    A key is cut into `m` parts, and each is known by the nearest of 2^`bits` centroids, which
    k-means finds per layer, KV head and part when a row is admitted; later tokens go to the nearest
    ones. score(s) = Σ over a KV head's query heads of softmax(Σ over parts of q·centroid / √D).
    The first `sinks` and last `recent` positions are always chosen. MagicDec used m=16, bits=8.
    """

    m: int = 2
    bits: int = 6
    iterations: int = 4
    sample: int = 1024
    sinks: int = 32
    recent: int = 32

    def __post_init__(self) -> None:
        require(self.m >= 1, f"m must be at least 1, got {self.m}")
        require(1 <= self.bits <= 8, f"bits must be in 1..8, got {self.bits}")
        require(self.iterations >= 1, f"iterations must be at least 1, got {self.iterations}")
        require(
            self.sample >= 2**self.bits,
            f"sample must be at least 2^bits, {2**self.bits}, got {self.sample}",
        )
        require(self.sinks >= 0, f"sinks must be at least 0, got {self.sinks}")
        require(self.recent >= 0, f"recent must be at least 0, got {self.recent}")

    def index(self, shape: KeyShape) -> KeyIndex:
        from magicdec.engine.indexes.quantized import QuantizedIndex

        require(
            shape.head_dim % self.m == 0,
            f"m={self.m} does not divide the model's head dimension of {shape.head_dim}; "
            "give a power of 2, such as m=2",
        )
        return QuantizedIndex(
            shape, parts=self.m, bits=self.bits, iterations=self.iterations, sample=self.sample,
            sinks=self.sinks, recent=self.recent,
        )  # fmt: skip

    def search(self, head_dim: int = 128, element_size: int = 2) -> Search:
        codes = self.m / (2 * head_dim * element_size)  # a byte each
        return Search(once=1 / 2, per_draft=codes)  # every key
