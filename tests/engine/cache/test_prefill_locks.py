"""While another process stores prefills, no run waits for it: only its end does, once, aloud."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

from magicdec.engine.cache import prefill_store
from magicdec.engine.cache.prefill_files import lock_path, prefills_folder
from magicdec.engine.cache.prefill_store import PrefillStore
from magicdec.engine.config import DecodeConfig
from magicdec.engine.engine import Engine
from magicdec.engine.events import RowFinished, RunFinished
from magicdec.engine.request import Request
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")
CONFIG = DecodeConfig(gamma=0, max_new_tokens=4)


@pytest.fixture
def happened() -> list[object]:
    """Events, and what the store said in between."""
    return []


@pytest.fixture
def engine(tiny, tokenizer, happened, monkeypatch) -> Engine:
    """With one slot, so that every request but the first needs that of another."""
    monkeypatch.setattr(prefill_store, "PATIENCE", 0.1)
    return Engine(
        tiny().ours, tokenizer, get_backend("sdpa", CPU), slots=1, capacity=400, chunk=64,
        store=PrefillStore("weights", "tiny", 2**30, say=happened.append),
    )  # fmt: skip


@pytest.fixture
def requests(prompt) -> list[Request]:
    return [Request(f"doc{n}", prompt(300, seed=n), n) for n in range(3)]


def kept(cache_dir):
    return list(cache_dir.glob("prefills/*/*.kv"))


def test_a_held_lock_is_waited_for_once_and_when_the_run_has_ended(
    engine, requests, cache_dir, hold, happened
):
    with hold(lock_path(prefills_folder())) as pid:
        for _ in range(2):
            for event in engine.run(requests, CONFIG):
                happened.append(event)
    said = [what for what in happened if isinstance(what, str)]
    assert said == [f"waiting for process {pid}, which is storing prefills"]
    assert isinstance(happened[happened.index(said[0]) - 1], RunFinished)  # in none of its phases
    (warning,) = engine.store.warnings
    assert f"process {pid} holds" in warning and "\n" not in warning
    assert not engine.store.writable and kept(cache_dir) == []
    assert len([event for event in happened if isinstance(event, RowFinished)]) == 6


def test_what_is_there_when_the_other_has_finished_is_stored(
    engine, requests, cache_dir, hold, happened
):
    with ExitStack() as other:
        other.enter_context(hold(lock_path(prefills_folder())))
        for event in engine.run(requests, CONFIG):
            if isinstance(event, RunFinished):
                other.close()
    assert happened == [] and engine.store.writable
    assert len(engine.store.warnings) == 1  # the first two were given up
    assert len(kept(cache_dir)) == 3  # two blocks and the end of the last


def test_who_stops_a_run_waits_for_nobody(engine, requests, cache_dir, hold, happened):
    with hold(lock_path(prefills_folder())):
        run = engine.run(requests, CONFIG)
        while not isinstance(next(run), RowFinished):
            pass
        run.close()
    assert happened == [] and kept(cache_dir) == []
