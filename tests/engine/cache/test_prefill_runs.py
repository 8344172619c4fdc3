"""Whole runs with a store: the same text, true counts, and when it is written."""

from __future__ import annotations

import itertools

import pytest
import torch

from magicdec.engine.config import DecodeConfig
from magicdec.engine.engine import Engine
from magicdec.engine.events import GammaChosen, PrefillProgress, RunFinished, StepFinished
from magicdec.engine.loading.checkpoint import Checkpoint
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")


@pytest.fixture
def engine(tiny, tokenizer, store):
    """An engine with an empty cache over the stored prefills."""

    def make(slots: int, *, stored: bool = True) -> Engine:
        return Engine(
            tiny().ours, tokenizer, get_backend("sdpa", CPU), slots=slots, capacity=400, chunk=64,
            store=store() if stored else None,
        )  # fmt: skip

    return make


def requests(prompts):
    return [Request(f"doc{row}", tuple(tokens), row) for row, tokens in enumerate(prompts)]


def kept(cache_dir):
    return list(cache_dir.glob("prefills/*/*.kv"))


def reused(outcome) -> int:
    return [e for e in outcome.events if isinstance(e, PrefillProgress)][-1].reused


@pytest.mark.parametrize("selector", ["snapkv", "streaming", "full"])
def test_speculative_text_is_the_same_with_and_without_the_store(
    tiny, prompt, decode, engine, selector
):
    model, long = tiny().ours, prompt(330)
    prompts = [long, long[:290], (*long[:200], *prompt(60, seed=3))]
    settings = dict(gamma=3, selector=selector, budget=40, max_new_tokens=20)
    want = decode(model, prompts, engine=engine(3, stored=False), **settings)
    first = decode(model, prompts, engine=engine(3), **settings)
    again = decode(model, prompts, engine=engine(3), **settings)
    assert first.tokens == again.tokens == want.tokens
    assert first.texts == again.texts == want.texts
    assert reused(again) == sum(map(len, prompts)) > reused(first)
    plain = decode(model, prompts, engine=engine(3), **{**settings, "gamma": 0})
    assert plain.tokens == want.tokens


def test_what_is_read_counts_as_prefill_and_phases_sum_to_the_wall(prompt, decode, engine, tiny):
    settings = dict(gamma=2, budget=40, max_new_tokens=5)
    for expected in (0, 300):
        got = decode(tiny().ours, [prompt(300)], engine=engine(1), **settings)
        assert reused(got) == expected
        (end,) = [e for e in got.events if isinstance(e, RunFinished)]
        parts = [getattr(end.phases, name) for name in end.phases.__dataclass_fields__]
        assert end.phases.wall == pytest.approx(sum(parts)) and end.phases.prefill > 0


def test_nothing_is_written_before_the_run_has_been_measured(prompt, engine, cache_dir):
    config = DecodeConfig(gamma=2, budget=40, max_new_tokens=8)
    for last in engine(2).run(requests([prompt(300), prompt(200)]), config):  # noqa: B007
        assert kept(cache_dir) == []
    assert isinstance(last, RunFinished)
    assert len(kept(cache_dir)) == 2 + 1 + 2


def test_a_run_that_is_stopped_keeps_its_prefills(prompt, engine, cache_dir, decode, tiny):
    config = DecodeConfig(gamma=2, budget=40, max_new_tokens=50)
    events = engine(1).run(requests([prompt(300)]), config)
    seen = list(itertools.takewhile(lambda event: not isinstance(event, StepFinished), events))
    assert isinstance(seen[-1], GammaChosen)
    events.close()
    again = decode(tiny().ours, [prompt(300)], engine=engine(1), max_new_tokens=2)
    assert reused(again) == 300


def test_prompts_of_rows_that_made_place_are_kept_too(prompt, engine, decode, tiny):
    prompts = [prompt(200 + 10 * n, seed=n) for n in range(4)]
    settings = dict(gamma=2, budget=40, max_new_tokens=4)
    want = decode(tiny().ours, prompts, engine=engine(1), **settings)
    got = decode(tiny().ours, prompts, engine=engine(4), **settings)
    assert reused(got) == sum(map(len, prompts))
    assert got.tokens == want.tokens


@pytest.fixture
def session(tiny, tokenizer):
    def make(prefill_cache: int = 2**30) -> Session:
        pair = tiny()
        checkpoint = Checkpoint("tiny", pair.ours.spec, pair.theirs.state_dict(), tokenizer)
        return Session(
            checkpoint, device=CPU, dtype=torch.float32, kv_dtype=torch.float32,
            backend=get_backend("sdpa", CPU),
            chunk=64, progress=lambda *_: None, prefill_cache=prefill_cache,
        )  # fmt: skip

    return make


def test_a_session_tells_what_it_met_with_its_other_warnings(session, prompt, cache_dir):
    config, rows = DecodeConfig(gamma=2, budget=40, max_new_tokens=4), requests([prompt(300)])
    one = session()
    list(one.run(rows, config, batch=1))
    assert one.warnings(rows, config) == []
    for path in kept(cache_dir):
        path.write_bytes(path.read_bytes()[:-1])
    two = session()
    list(two.run(rows, config, batch=1))
    assert ["damaged" in warning for warning in two.warnings(rows, config)] == [True, True]


def test_without_a_size_nothing_is_kept(session, prompt, cache_dir):
    config = DecodeConfig(gamma=2, budget=40, max_new_tokens=4)
    list(session(prefill_cache=0).run(requests([prompt(300)]), config, batch=1))
    assert not cache_dir.exists()
