"""All tokens of a text in one pass: each sees what its draft step would have found in the view."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.config import SamplingConfig
from magicdec.engine.request import Request
from magicdec.engine.selection import SELECTORS
from magicdec.engine.views.make import make_view
from magicdec.kernels.backends import get_backend
from magicdec.profiles.acceptance.forced import chances
from magicdec.profiles.acceptance.reader import SteppingReader, TargetReader, TracedRow, unrolled

CPU = torch.device("cpu")
SAMPLING = SamplingConfig(temperature=1.0)
TOKENS = 75  # of each text; more than one pass takes


def cached(model, prompts, texts, backend="sdpa", kv_dtype=None):
    """A cache that holds prompts and texts, one row to a slot; and the rows."""
    longest = max(len(p) + len(t) for p, t in zip(prompts, texts, strict=True))
    cache = KVCache(
        model, get_backend(backend, CPU), rows=len(prompts), capacity=longest + 33, dtype=kv_dtype
    )
    rows = []
    for slot, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        for _ in prefill(model, cache, slot, prompt, chunk=32):
            pass
        rows.append(TracedRow(slot, Request("doc", tuple(prompt), slot), tuple(text)))
    chances(model, TargetReader(cache, rows), rows, SAMPLING)
    return cache, rows


def in_steps(model, cache, rows, selector, budget, block):
    """The same from a view that rolls: a pass of `block` tokens, then the target's K/V of them."""
    view = make_view(
        cache, selector, budget=budget, context=max(r.prompt for r in rows), growth=TOKENS,
        gamma=block,
    )  # fmt: skip
    return chances(model, SteppingReader(cache, view, rows, block), rows, SAMPLING)


@pytest.mark.parametrize("block", [1, 3, 4])
@pytest.mark.parametrize(
    ("name", "options", "budget"),
    [
        ("snapkv", {"window": 8}, 30),
        ("streaming", {}, 24),
        ("streaming", {"sinks": 0}, 100),  # more than some prompts have, rolling all the same
        ("window", {}, 9),
        ("window", {}, 500),
    ],
)
def test_a_token_sees_what_its_step_would_have_found(tiny, prompt, name, options, budget, block):
    model = tiny().ours
    prompts = [prompt(length) for length in (90, 40, 120)]
    texts = [prompt(length, seed=1) for length in (TOKENS, 20, 70)]
    cache, rows = cached(model, prompts, texts)
    selector = SELECTORS.create(name, options)
    view = unrolled(cache, rows, selector, budget, block)
    at_once = chances(model, view, rows, SAMPLING)
    for mine, real in zip(
        at_once, in_steps(model, cache, rows, selector, budget, block), strict=True
    ):
        assert mine == pytest.approx(real, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("kv_dtype", [None, torch.bfloat16], ids=["f32", "bf16"])
def test_the_whole_cache_is_the_target(tiny, prompt, kind, kv_dtype):
    """Sliding windows included; and nothing valid is overwritten."""
    changes = {} if kind == "llama" else {
        "use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1
    }  # fmt: skip
    model = tiny(kind, **changes).ours
    prompts, texts = [prompt(60), prompt(31)], [prompt(TOKENS, seed=1), prompt(40, seed=1)]
    cache, rows = cached(model, prompts, texts, kv_dtype=kv_dtype)
    target = chances(model, TargetReader(cache, rows), rows, SAMPLING)
    before = cache.k.clone()
    exact = 1e-3 if kv_dtype is None else 0.1  # the draft's own K/V are rounded in other places
    for block in (1, 4):
        view = unrolled(cache, rows, SELECTORS.create("full"), 1, block)
        for mine, real in zip(chances(model, view, rows, SAMPLING), target, strict=True):
            assert mine == pytest.approx(real, rel=exact, abs=1e-6)
    for row in rows:
        valid = slice(0, row.prompt + row.fed)
        assert torch.equal(cache.k[:, row.slot, :, valid], before[:, row.slot, :, valid])


def test_a_text_without_a_second_token_needs_no_pass(tiny, prompt):
    model = tiny().ours
    cache, rows = cached(model, [prompt(40), prompt(50)], [[7], [9]])
    view = unrolled(cache, rows, SELECTORS.create("streaming"), 16, 4)
    assert [len(row) for row in chances(model, view, rows, SAMPLING)] == [0, 0]
