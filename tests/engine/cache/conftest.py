"""A store in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.cache.prefill_store import PrefillStore
from magicdec.kernels.backends import get_backend


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(folder))
    return folder


def make_store(identity: str = "weights", limit: int = 2**30) -> PrefillStore:
    """As another process would open it: nothing is shared but the folder."""
    return PrefillStore(identity, "tiny", limit)


@pytest.fixture
def store() -> Callable[..., PrefillStore]:
    return make_store


def make_cache(model: Any, backend: str = "sdpa") -> KVCache:
    return KVCache(model, get_backend(backend, torch.device("cpu")), rows=1, capacity=500)


@pytest.fixture
def run() -> Callable[..., tuple[KVCache, int]]:
    """Prefills a prompt into a fresh cache: run(model, tokens, store) -> (cache, reused)."""

    def prefilled(
        model: Any,
        tokens: Any,
        store: PrefillStore | None,
        *,
        backend: str = "sdpa",
        **options: Any,
    ) -> tuple[KVCache, int]:
        cache = make_cache(model, backend)
        chunks = list(prefill(model, cache, 0, tokens, chunk=100, store=store, **options))
        assert chunks[-1].done == len(tokens)
        assert cache.lengths == [len(tokens)]
        if store is not None:
            store.keep(cache, 0, cache.prompts[0].tokens, cache.prompts[0])
        return cache, chunks[-1].reused

    return prefilled
