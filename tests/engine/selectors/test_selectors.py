"""Selectors keep their contract, and do what their papers say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.engine.plugins.registry import installed_plugins
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.selectors.h2o import H2O
from magicdec.engine.selectors.snapkv import SnapKV
from magicdec.engine.selectors.triforce import TriForce

EXAMPLES = Path(__file__).parents[3] / "examples"
OUTSIDE = "strided:Strided"
SPARSE = [
    name for name in SELECTORS.names()
    if name != "full" and not issubclass(SELECTORS.load(name), DynamicSelector)
]  # fmt: skip


@pytest.fixture(autouse=True)
def examples_importable(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def tensors(heads: int, kv_heads: int, length: int, observed: int, dim: int = 8):
    noise = torch.Generator().manual_seed(length)
    keys = torch.randn(kv_heads, length, dim, generator=noise)
    return keys, torch.randn(heads, min(observed, length), dim, generator=noise)


@pytest.mark.parametrize("name", [*SPARSE, OUTSIDE])
@given(length=st.integers(1, 90), budget=st.integers(5, 100), group=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_positions_are_sorted_unique_in_range_and_fill_the_budget(name, length, budget, group):
    selector = SELECTORS.create(name)
    keys, queries = tensors(2 * group, 2, length, selector.observed)
    kept = selector.select(keys, queries, budget)
    assert kept.shape == (2, min(budget, length)) and kept.dtype is torch.int64
    for head in kept.tolist():
        assert head == sorted(set(head)) and head[0] >= 0 and head[-1] < length
        assert head[-1] == length - 1, "the last position is always worth keeping"


@pytest.mark.parametrize("length", [3, 4, 10, 40])
def test_streaming_keeps_sinks_and_the_latest(length):
    selector = SELECTORS.create("streaming", {"sinks": "3"})
    keys, queries = tensors(2, 2, length, 0)
    want = sorted({*range(min(3, length)), *range(max(0, length - 6), length)})
    if length <= 9:
        want = list(range(length))
    assert selector.select(keys, queries, 9).tolist() == [want, want]
    assert selector.ring(9) == 6


def naive_snapkv(keys, queries, window: int, pool: int) -> torch.Tensor:
    """SnapKV's score, position by position, from its definition."""
    kv_heads, length, dim = keys.shape
    heads = queries.shape[0]
    window = queries.shape[1]
    scores = torch.zeros(kv_heads, length)
    for h in range(heads):
        kv = h // (heads // kv_heads)
        mass = torch.zeros(length - window)
        for i in range(window):
            seen = length - window + i + 1
            weights = (keys[kv, :seen] @ queries[h, i] / dim**0.5).softmax(0)
            mass += weights[: length - window]
        half = pool // 2
        for s in range(length - window):
            for t in range(s - half, s + half + 1):
                if 0 <= t < length - window:
                    scores[kv, s] += mass[t] / pool
    return scores


@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8])
def test_snapkv_scores_equal_a_naive_reference(group):
    selector = SnapKV(window=6, pool=3)
    keys, queries = tensors(2 * group, 2, 40, 6)
    torch.testing.assert_close(
        selector.score(keys, queries), naive_snapkv(keys, queries, 6, 3), rtol=1e-4, atol=1e-6
    )
    kept = selector.select(keys, queries, 16)
    best = naive_snapkv(keys, queries, 6, 3).topk(10, dim=1).indices
    for head in range(2):
        assert set(kept[head].tolist()) == {*best[head].tolist(), *range(34, 40)}


def test_snapkv_with_a_prompt_shorter_than_its_window():
    keys, queries = tensors(4, 2, 5, 32)
    assert SnapKV().select(keys, queries, 100).tolist() == [list(range(5))] * 2


def naive_mass(keys, queries) -> torch.Tensor:
    """Attention that every position gets from the last queries, one product at a time."""
    (kv_heads, length, dim), (heads, window, _) = keys.shape, queries.shape
    mass = torch.zeros(kv_heads, length)
    for h in range(heads):
        kv = h // (heads // kv_heads)
        for i in range(window):
            seen = length - window + i + 1
            mass[kv, :seen] += (keys[kv, :seen] @ queries[h, i] / dim**0.5).softmax(0)
    return mass


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("counted", [1, 64, 65, 130, 200])
def test_h2o_keeps_heavy_hitters_and_the_latest_half(group, counted):
    """130 is every query of the prompt, as in the paper; the product goes in blocks of 64."""
    selector = H2O(queries=counted)
    keys, queries = tensors(2 * group, 2, 130, counted)
    kept = selector.select(keys, queries, 21)
    best = naive_mass(keys, queries)[:, :119].topk(10, dim=1).indices
    for head in range(2):
        assert set(kept[head].tolist()) == {*best[head].tolist(), *range(119, 130)}


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("length", [3, 8, 37, 40])
def test_triforce_keeps_the_chunks_that_fit_the_last_query(group, length):
    keys, queries = tensors(2 * group, 2, length, 1)
    scores = TriForce().score(keys, queries)
    for kv in range(2):
        for s in range(length):
            members = range(s // 8 * 8, min(s // 8 * 8 + 8, length))
            mean = sum(keys[kv, i] for i in members) / len(members)
            fit = sum(float(mean @ queries[h, -1]) for h in range(kv * group, (kv + 1) * group))
            assert scores[kv, s].item() == pytest.approx(fit, abs=1e-4)
    if length == 40:
        kept = TriForce().select(keys, queries, 24)
        best = scores[:, 8:32:8].argmax(dim=1) + 1  # of the chunks between the first and the last
        for head in range(2):
            chunk = 8 * int(best[head])
            assert kept[head].tolist() == [*range(8), *range(chunk, chunk + 8), *range(32, 40)]


def test_the_paper_h2o_counts_every_query_of_the_prompt(tiny, prompt, decode):
    """More queries than a chunk holds: they are gathered over the chunks of a prefill."""
    model, settings = tiny().ours, dict(gamma=3, budget=12, max_new_tokens=8, ignore_eos=True)
    runs = [
        decode(
            model, [prompt(90)], chunk=chunk, selector="h2o", selector_options={"queries": 1000},
            **settings,
        )
        for chunk in (7, 200)
    ]  # fmt: skip
    small, whole = (run.engine.cache.prompts[0].queries for run in runs)
    assert whole.shape[2] == 90
    torch.testing.assert_close(small, whole, rtol=1e-4, atol=1e-4)
    assert runs[0].tokens == runs[1].tokens


@pytest.mark.parametrize("name", SELECTORS.names())
def test_every_selector_says_what_its_search_reads(name):
    search = SELECTORS.create(name).search(head_dim=64, element_size=4)
    reads_keys = name not in ("full", "streaming", "window")
    parts = (search.once, search.per_draft, search.per_verify)
    assert any(parts) == reads_keys and all(0 <= part <= 1 for part in parts)
    again = name in ("topk", "quest", "pqcache", "reuse")
    assert any(parts[1:]) == again


def test_a_selector_from_outside_is_lossless_by_its_path(tiny, prompt, decode):
    prompts = [prompt(60), prompt(31)]
    common = dict(max_new_tokens=20, ignore_eos=True)
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(
        tiny().ours, prompts, gamma=3, selector=OUTSIDE, selector_options={"recent": "8"},
        budget=16, **common,
    )  # fmt: skip
    assert got.tokens == plain.tokens


@pytest.fixture
def installed_anew():
    """Plug-ins are looked for again, and once more after the test."""
    installed_plugins.cache_clear()
    yield
    installed_plugins.cache_clear()


def test_a_selector_from_an_entry_point_is_listed_and_loaded(tmp_path, monkeypatch, installed_anew):
    info = tmp_path / "strided_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strided-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[magicdec.selectors]\nevery-nth = strided:Strided\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert "every-nth" in SELECTORS.names()
    assert SELECTORS.load("every-nth").__name__ == "Strided"


@pytest.mark.parametrize(
    "name,options,message",
    [
        ("snapvk", {}, "no KVSelector is called 'snapvk'; choose from full, h2o, pqcache, quest"),
        ("nowhere:Thing", {}, "cannot load KVSelector 'nowhere:Thing'"),
        ("strided:Missing", {}, "cannot load KVSelector 'strided:Missing'"),
        ("examples/strided.py:Strided", {}, "give package.module:Class"),
        ("snapkv:", {}, "cannot load KVSelector 'snapkv:'; give package.module:Class"),
        ("nowhere:Thing", {}, "is its folder in PYTHONPATH"),
        ("pathlib:Path", {}, "'pathlib:Path' is not a KVSelector subclass"),
        ("magicdec.engine.selectors.base:ScoredSelector", {}, "does not define score"),
        ("snapkv", {"windw": "3"}, "snapkv has no option 'windw'; its options: window, pool"),
        ("snapkv", {"window": "many"}, "snapkv: window must be int, got 'many'"),
        ("snapkv", {"pool": "4"}, "pool must be odd and positive, got 4"),
        ("window", {"sinks": "4"}, "window has no option 'sinks'; its options: none"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(name, options, message):
    with pytest.raises(ConfigError, match=message) as error:
        SELECTORS.create(name, options)
    assert "\n" not in str(error.value)
