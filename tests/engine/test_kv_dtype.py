"""Storing K and V in bfloat16: half the bytes, and still plain decoding's tokens."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.compare.lossless import compare
from magicdec.engine.config import DecodeConfig
from magicdec.engine.device import pick_kv_dtype
from magicdec.engine.errors import ConfigError
from magicdec.engine.memory.plan import forecast
from magicdec.engine.memory.run_shape import RunShape
from magicdec.engine.request import Request
from magicdec.engine.selection import SELECTORS
from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.backends import backend_names, get_backend

CPU = torch.device("cpu")
BF16 = torch.bfloat16
PROMPTS = {1: (50,), 3: (50, 7, 33)}  # by batch; 3 is ragged


@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("batch", PROMPTS)
@pytest.mark.parametrize("selector", SELECTORS.names())
def test_greedy_is_lossless(tiny, prompt, decode, selector, batch, gamma):
    prompts = [prompt(n, seed=i) for i, n in enumerate(PROMPTS[batch])]
    settings = dict(budget=12, selector=selector, max_new_tokens=24, ignore_eos=True, kv_dtype=BF16)
    plain = decode(tiny().ours, prompts, gamma=0, **settings)
    got = decode(tiny().ours, prompts, gamma=gamma, **settings)
    assert got.engine.cache.k.dtype is BF16
    assert got.tokens == plain.tokens


def test_the_stored_values_are_what_is_read(tiny, prompt, decode):
    """bfloat16 storage is not ignored: it changes logits, by about its rounding."""
    logits = {}
    for dtype in (None, BF16):
        cache = KVCache(tiny().ours, get_backend("sdpa", CPU), rows=1, capacity=64, dtype=dtype)
        list(prefill(tiny().ours, cache, 0, prompt(60), chunk=16))
        logits[dtype] = cache.prompts[0].logits
        assert logits[dtype].dtype is torch.float32
    difference = float((logits[None] - logits[BF16]).abs().max() / logits[None].abs().max())
    assert 1e-5 < difference < 0.05


@pytest.mark.parametrize("name", backend_names())
def test_backends_compute_in_the_dtype_of_the_queries(name):
    torch.manual_seed(0)
    shape = AttentionShape((0, 1), (30, 22), 3)
    q = torch.randn(2, 3, 6, 16)
    k, v = (torch.randn(2, 2, 40, 16).to(BF16) for _ in range(2))
    results = []
    for caches in ((k, v), (k.float(), v.float())):
        plan = get_backend(name, CPU).plan(
            shape, query_heads=6, kv_heads=2, dtype=torch.float32, device=CPU
        )
        results.append(plan.attend(q, *caches))
    assert results[0].dtype is torch.float32
    torch.testing.assert_close(results[0], results[1])


def test_a_mistake_is_found_and_a_tie_is_not_one(tiny, prompt, decode):
    prompts = [prompt(40)]
    settings = dict(max_new_tokens=12, ignore_eos=True, kv_dtype=BF16)
    plain = decode(tiny().ours, prompts, gamma=0, **settings).tokens
    wrong = [list(plain[0])]
    wrong[0][7] = (wrong[0][7] + 1) % 128
    requests = [Request("doc", tuple(prompts[0]), 0)]
    verdict = compare(
        tiny().ours, get_backend("sdpa", CPU), requests, plain, wrong, width=4, kv_dtype=BF16
    )
    assert not verdict.ok and verdict.divergences[0].position == 7
    assert verdict.divergences[0].tolerance < verdict.divergences[0].gap


def test_the_forecast_halves_the_caches(tiny):
    def need(dtype: torch.dtype) -> tuple[int, int]:
        run = RunShape(tiny().ours.spec, DecodeConfig(), 2, 50, 32, torch.float32, dtype, CPU)
        plan = forecast(run, 1 << 40)
        return plan.full_kv, plan.draft_kv

    wide, narrow = need(torch.float32), need(BF16)
    assert (narrow[0] * 2, narrow[1] * 2) == wide


def test_auto_is_the_models_dtype():
    assert pick_kv_dtype("auto", torch.float16) is torch.float16
    assert pick_kv_dtype("bfloat16", torch.float32) is BF16
    with pytest.raises(ConfigError, match=r"no KV dtype is called 'int8'; use auto, float32"):
        pick_kv_dtype("int8", torch.float32)
