"""Keys known by their nearest centroids: product quantisation (PQCache, arXiv 2407.12820)."""

from __future__ import annotations

import importlib
import os
import warnings
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from magicdec.engine.indexes.base import KeyIndex, KeyShape
from magicdec.engine.model.parallel import in_parallel
from magicdec.kernels.candidates import Candidates

#: Tokens whose distances to all centroids are held at once.
BLOCK = 512


class QuantizedIndex(KeyIndex):
    """centroids: [L, rows, Hkv, m, C, D / m]; codes: uint8 [L, rows, Hkv, S, m]."""

    def __init__(
        self, shape: KeyShape, *, parts: int, bits: int, iterations: int, sample: int, sinks: int,
        recent: int,
    ) -> None:  # fmt: skip
        """The arguments are the options of `selectors/pqcache.py`; `parts` is m."""
        self._search, self._iterations, self._sample = shape.search, iterations, sample
        self._sinks, self._recent = sinks, recent
        self._parts = (parts, shape.head_dim // parts)
        owners = (shape.layers, shape.rows, shape.kv_heads)
        self.centroids = torch.zeros(
            *owners, parts, 2**bits, self._parts[1],
            dtype=torch.float32, device=shape.device,
        )  # fmt: skip
        self.codes = torch.zeros(
            *owners, shape.capacity, parts, dtype=torch.uint8, device=shape.device
        )

    def tensors(self) -> list[Tensor]:
        return [self.centroids, self.codes]

    def admit(self, slot: int, keys: Tensor) -> None:
        """Finds the centroids among the keys between the sinks and the recent ones."""
        middle = keys[:, :, self._sinks : max(self._sinks, keys.shape[2] - self._recent)]
        seen = middle if middle.shape[2] else keys
        if seen.shape[2]:
            at = torch.linspace(0, seen.shape[2] - 1, min(self._sample, seen.shape[2]))
            sample = (
                seen[:, :, at.long().to(seen.device)].unflatten(-1, self._parts).transpose(2, 3)
            )
            own = self.centroids[:, slot]  # [L, Hkv, m, C, D / m]
            own.copy_(centroids(sample, own.shape[3], self._iterations))
        self.extend(slot, keys, 0)

    def extend(self, slot: int, keys: Tensor, first: int) -> None:
        for start in range(first, keys.shape[2], BLOCK):
            new = keys[:, :, start : start + BLOCK].float().unflatten(-1, self._parts)
            codes = nearest(new.transpose(2, 3), self.centroids[:, slot])  # [L, Hkv, m, new]
            self.codes[:, slot, :, start : start + new.shape[2]] = codes.transpose(2, 3)

    def tables(self, layer: int, queries: Tensor, rows: Candidates) -> Tensor:
        """q·centroid / √D, whose sums over parts approximate q·k: [n, Hkv, m, C, G]."""
        own = self.centroids[layer, rows.rows]  # [n, Hkv, m, C, D / m]
        scaled = queries.float() * queries.shape[-1] ** -0.5
        tables: Tensor = own @ scaled.unflatten(-1, self._parts).permute(0, 1, 3, 4, 2)
        return tables

    def choose(
        self, layer: int, queries: Tensor, keys: Tensor, rows: Candidates, budget: int
    ) -> Tensor:
        sinks, recent = self._sinks, self._recent
        codes = self.codes[layer, rows.rows, :, : rows.longest]
        # What is chosen anyway takes no part in the softmax.
        mass = self._search.code_mass(
            self.tables(layer, queries, rows), codes, rows, sinks=sinks, recent=recent
        )
        return self._search.best(mass, rows, budget, sinks=sinks, recent=recent)


def nearest(keys: Tensor, centroids: Tensor) -> Tensor:
    """Which centroid each part of a key is closest to: [..., S, d], [..., C, d] -> [..., S]."""
    # |k - c|² without |k|², which all centroids share.
    distance = centroids.square().sum(-1)[..., None, :] - 2 * keys @ centroids.transpose(-1, -2)
    return distance.argmin(dim=-1)


def centroids(sample: Tensor, count: int, iterations: int) -> Tensor:
    """k-means of every [N, d] in [..., N, d]: [..., count, d], float32 on the CPU.

    It starts from members spread over the sample, so that the same text gives the same centroids.
    With fewer members than centroids some are repeated.
    """
    _load_scipy()
    groups = sample.float().cpu().flatten(0, -3).numpy()
    found = in_parallel([partial(_kmeans, group, count, iterations) for group in groups])
    return torch.from_numpy(np.stack(found)).view(*sample.shape[:-2], count, -1)


def _load_scipy() -> None:
    """Imports scipy's k-means with its BLAS, OpenBLAS, on one thread, unless the user says more.

    Products this small get 15 times slower when OpenBLAS's threads wait busily beside torch's, and
    the groups are spread over threads anyway. OpenBLAS reads the variable when it is loaded.
    """
    name = "OPENBLAS_NUM_THREADS"
    given = name in os.environ
    os.environ.setdefault(name, "1")
    try:
        importlib.import_module("scipy.cluster.vq")
    finally:
        if not given:
            del os.environ[name]


def _kmeans(group: NDArray[np.float32], count: int, iterations: int) -> NDArray[np.float32]:
    from scipy.cluster.vq import kmeans2

    start: NDArray[np.float32] = group[np.linspace(0, len(group) - 1, count).round().astype(int)]
    if len(group) <= count:
        return start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a centroid that loses all members stays
        found, _ = kmeans2(group, start, iter=iterations, minit="matrix", check_finite=False)
    kept: NDArray[np.float32] = np.asarray(found, dtype=np.float32)
    return kept
