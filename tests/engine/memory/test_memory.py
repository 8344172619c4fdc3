"""The forecast comes before the allocation, and says what would fit."""

from __future__ import annotations

import re

import pytest
import torch

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.errors import OutOfMemoryError
from magicdec.engine.memory.plan import available_memory, forecast, require_fit
from magicdec.engine.memory.run_shape import RunShape

SIZE = {
    "chunk": 64,
    "dtype": torch.float32,
    "kv_dtype": torch.float32,
    "device": torch.device("cpu"),
}


def test_forecast_equals_what_is_allocated(tiny, prompt, decode):
    """Caches to the byte: the forecast is for the very shapes the engine makes."""
    model = tiny().ours
    config = dict(gamma=3, selector="snapkv", budget=40, max_new_tokens=10)
    plan = forecast(RunShape(model.spec, DecodeConfig(**config), 2, 100, **SIZE), 0)
    from magicdec.engine.memory.run_shape import capacity
    from magicdec.engine.selection import SELECTORS
    from magicdec.engine.views.make import make_view

    engine = decode(
        model, [prompt(100), prompt(50)], capacity=capacity(DecodeConfig(**config), 100), **config
    ).engine
    assert plan.full_kv == engine.cache.k.nbytes + engine.cache.v.nbytes
    view = make_view(
        engine.cache, SELECTORS.create("snapkv"), budget=40, context=100, growth=10, gamma=3
    )
    assert plan.draft_kv == view.store.k.nbytes + view.store.v.nbytes
    weights = sum(p.nbytes for n, p in tiny().theirs.named_parameters() if p.ndim == 2)
    assert plan.weights == weights
    assert plan.total == sum(size for _, size in plan.lines())


@pytest.mark.parametrize("selector", ["snapkv", "streaming", "full"])
def test_what_is_said_to_fit_fits_and_one_more_does_not(tiny, selector):
    spec = tiny().ours.spec
    config = DecodeConfig(selector=selector, budget=64)
    free = 40 * 2**20

    def need(batch: int, context: int) -> int:
        return forecast(RunShape(spec, config, batch, context, **SIZE), free).total

    with pytest.raises(OutOfMemoryError) as error:
        require_fit(RunShape(spec, config, 64, 8000, **SIZE), free)
    line = str(error.value)
    assert "\n" not in line
    found = re.search(r"largest that fits: --batch (\d+), or --context (\d+)$", line)
    batch, context = int(found[1]), int(found[2])
    assert need(batch, 8000) <= free < need(batch + 1, 8000)
    assert need(64, context) <= free < need(64, context + 1)


def test_when_nothing_fits_it_says_so(tiny):
    with pytest.raises(OutOfMemoryError, match="not even one row fits"):
        require_fit(RunShape(tiny().ours.spec, DecodeConfig(), 2, 100, **SIZE), 1000)


def test_plain_decoding_needs_no_draft_cache_and_sampling_more_workspace(tiny):
    spec = tiny().ours.spec

    def plan(**settings):
        return forecast(RunShape(spec, DecodeConfig(**settings), 2, 100, **SIZE), 0)

    assert plan(gamma=0).draft_kv == 0 == plan(selector="full").draft_kv
    sampled = plan(sampling=SamplingConfig(temperature=1.0))
    assert sampled.workspace > plan().workspace


def test_there_is_memory_here():
    assert available_memory(torch.device("cpu")) > 2**20
