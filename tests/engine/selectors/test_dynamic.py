"""Selectors that choose again as a row grows: what they choose, and what their index knows."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.errors import ConfigError, MagicdecError
from magicdec.engine.indexes.base import KeyIndex, KeyShape
from magicdec.engine.indexes.quantized import QuantizedIndex, centroids, nearest
from magicdec.engine.memory.plan import forecast
from magicdec.engine.memory.run_shape import RunShape
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.selectors.pqcache import PQCache
from magicdec.engine.selectors.quest import Quest
from magicdec.engine.selectors.reuse import Reuse
from magicdec.engine.selectors.topk import TopK
from magicdec.engine.views.dynamic import split
from magicdec.kernels.candidates import Candidates

CPU = torch.device("cpu")
DIM = 8
NEW = 24
#: Small enough that few entries leave something to choose; quest leaves two layers alone.
DYNAMIC = {
    "topk": {},
    "quest": {"page": 4, "pages": 2},
    "pqcache": {"bits": 3, "sinks": 2, "recent": 3, "sample": 64},
    "reuse": {"recent": 3},
    "reuse every 3": {"recent": 3, "refresh": 3},
}
dynamic = pytest.mark.parametrize("name", DYNAMIC)


def options(name: str) -> dict:
    return {"selector": name.partition(" ")[0], "selector_options": DYNAMIC[name]}


def create(name: str) -> DynamicSelector:
    return SELECTORS.create(name.partition(" ")[0], DYNAMIC[name])


def shape(rows: int, capacity: int, layers: int = 1, device: str = "cpu") -> KeyShape:
    return KeyShape(layers, rows, 2, capacity, DIM, torch.float32, torch.device(device))


@functools.cache
def tensors(rows: int, length: int, group: int, layers: int = 1):
    """keys [L, rows, Hkv, S, D]; queries [rows, Hkv, G, D]."""
    noise = torch.Generator().manual_seed(100 * length + group)
    keys = torch.randn(layers, rows, 2, length, DIM, generator=noise)
    return keys, torch.randn(rows, 2, group, DIM, generator=noise)


def test_all_of_them_are_here():
    kinds = {n for n in SELECTORS.names() if issubclass(SELECTORS.load(n), DynamicSelector)}
    assert kinds == {name.partition(" ")[0] for name in DYNAMIC}


def weights(keys, queries) -> torch.Tensor:
    """Attention that every position of one row and KV head gets from its query heads."""
    mass = torch.zeros(len(keys))
    for query in queries:
        mass += torch.tensor([float(query @ key) / DIM**0.5 for key in keys]).softmax(0)
    return mass


def naive_topk(keys, queries, budget):
    return set(weights(keys, queries).topk(budget).indices.tolist())


def naive_reuse(keys, queries, budget, recent=3):
    last = range(len(keys) - recent, len(keys))
    mass = weights(keys, queries)[: last.start]
    return {*mass.topk(budget - recent).indices.tolist(), *last}


def naive_quest(keys, queries, budget, page=4, least=2):
    pages = [range(s, min(s + page, len(keys))) for s in range(0, len(keys), page)]
    bound = {}
    for i, members in enumerate(pages[:-1]):
        low = [min(float(keys[s][d]) for s in members) for d in range(DIM)]
        high = [max(float(keys[s][d]) for s in members) for d in range(DIM)]
        bound[i] = sum(
            max(float(q[d]) * low[d], float(q[d]) * high[d]) for q in queries for d in range(DIM)
        )
    chosen, size = set(pages[-1]), 1
    for i in sorted(bound, key=bound.__getitem__, reverse=True):
        if size >= least and len(chosen) + page > budget:
            break
        chosen |= set(pages[i])
        size += 1
    return chosen


def chosen_sets(selector, keys, queries, lengths, budget):
    """What a batch of rows chooses, by row and KV head; keys [1, rows, Hkv, S, D]."""
    index = selector.index(shape(len(lengths), keys.shape[3]))
    for slot, length in enumerate(lengths):
        index.admit(slot, keys[:, slot, :, :length])
    rows = Candidates(0, tuple(lengths), CPU)
    chosen = index.choose(0, queries, keys[0, :, :, : rows.longest], rows, budget)
    assert chosen.dtype is torch.int64 and chosen.min() >= 0 and chosen.max() < rows.longest
    widths = [selector.width(length, budget) for length in lengths]
    assert chosen.shape == (len(lengths), 2, max(widths))
    found = {}
    for slot, (length, width) in enumerate(zip(lengths, widths, strict=True)):
        for head in range(2):
            own = chosen[slot, head, :width].tolist()
            found[slot, head] = set(own)
            assert len(found[slot, head]) == width and max(own) < length
    return found


@pytest.mark.parametrize(
    "selector,naive", [(TopK(), naive_topk), (Reuse(recent=3), naive_reuse),
    (Quest(page=4, pages=2), naive_quest)], ids=["topk", "reuse", "quest"],
)  # fmt: skip
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=4), budget=st.integers(4, 40),
    group=st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_choices_of_a_ragged_batch_equal_a_naive_reference(selector, naive, lengths, budget, group):
    lengths = [*lengths, 61]
    keys, queries = tensors(len(lengths), 61, group)
    found = chosen_sets(selector, keys, queries, lengths, budget)
    for (slot, head), own in found.items():
        if lengths[slot] <= budget:
            assert own == set(range(lengths[slot]))
        else:
            assert own == naive(keys[0, slot, head, : lengths[slot]], queries[slot, head], budget)


def naive_codes(keys, found):
    """keys [S, D], centroids [m, C, d] -> the nearest centroid of every part, [S][m]."""
    parts, _, size = found.shape
    return [
        [
            min(
                range(found.shape[1]),
                key=lambda c: float((key[p * size : (p + 1) * size] - found[p, c]).square().sum()),
            )
            for p in range(parts)
        ]
        for key in keys
    ]


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=3), budget=st.integers(4, 40),
    group=st.integers(1, 3), m=st.sampled_from([1, 2, 4]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_pqcache_sums_table_lookups_and_keeps_sinks_and_recent(lengths, budget, group, m):
    selector = PQCache(m=m, bits=3, sinks=2, recent=3, sample=64)
    lengths = [*lengths, 61]
    keys, queries = tensors(len(lengths), 61, group)
    found = chosen_sets(selector, keys, queries, lengths, budget)
    index = selector.index(shape(len(lengths), 61))
    for slot, length in enumerate(lengths):
        index.admit(slot, keys[:, slot, :, :length])
    for (slot, head), own in found.items():
        length = lengths[slot]
        if length <= budget:
            assert own == set(range(length))
            continue
        codebook = index.centroids[0, slot, head]
        codes = naive_codes(keys[0, slot, head, :length], codebook)
        near = torch.stack(
            [torch.cat([codebook[p, c] for p, c in enumerate(row)]) for row in codes]
        )
        recent = min(3, budget)
        sinks = min(2, budget - recent)
        pinned = {*range(sinks), *range(length - recent, length)}
        assert pinned <= own
        middle = range(2, length - 3)
        mass = dict(zip(middle, weights(near[2 : length - 3], queries[slot, head]), strict=True))
        rest = own - pinned
        # Keys of equal codes tie: any of them will do.
        best = sorted(mass.values(), reverse=True)[: len(rest)]
        assert sorted((mass[s] for s in rest), reverse=True) == pytest.approx(best, abs=1e-5)


def test_centroids_are_those_of_k_means():
    """Three tight clouds per group are found, whatever their sizes, in every group at once."""
    noise = torch.Generator().manual_seed(0)
    middles = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    sample = torch.cat([m + 0.1 * torch.randn(n, 2, generator=noise)
                        for m, n in zip(middles, (50, 30, 20), strict=True)])  # fmt: skip
    found = centroids(torch.stack((sample, sample.flip(0))), 3, iterations=10)
    for own in found:
        assert torch.cdist(middles, own).min(dim=1).values.max() < 0.1
        assert sorted(torch.bincount(nearest(sample, own)).tolist()) == [20, 30, 50]


def test_fewer_keys_than_centroids_are_their_own_centroids():
    sample = torch.randn(1, 5, 2)
    found = centroids(sample, 8, iterations=3)
    assert torch.cdist(sample[0], found[0]).min(dim=1).values.max() < 1e-6


@pytest.mark.parametrize("name", ["quest", "pqcache"])
@given(
    first=st.integers(1, 40), steps=st.lists(st.integers(1, 6), min_size=1, max_size=6),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_an_index_that_grew_equals_one_made_anew(name, first, steps):
    keys, _ = tensors(2, 90, 1, layers=3)
    grown = create(name).index(shape(2, 90, layers=3))
    grown.admit(1, keys[:, 0, :, :70])  # another row's, to be replaced
    length = first
    grown.admit(1, keys[:, 1, :, :length])
    for step in steps:
        grown.extend(1, keys[:, 1, :, : length + step], length)
        length += step
    anew = create(name).index(shape(2, 90, layers=3))
    if isinstance(anew, QuantizedIndex):
        anew.centroids.copy_(grown.centroids)
        anew.extend(1, keys[:, 1, :, :length], 0)
        assert torch.equal(grown.codes[:, 1, :, :length], anew.codes[:, 1, :, :length])
        assert not grown.codes[:, 0].any()
    else:
        anew.admit(1, keys[:, 1, :, :length])
        pages = -(-length // 4)
        assert torch.equal(grown.extremes[:, 1, :, :pages], anew.extremes[:, 1, :, :pages])
        assert not grown.extremes[:, 0].any()


@dynamic
@given(length=st.integers(1, 60), budget=st.integers(1, 70), group=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_one_row_chooses_sorted_unique_positions_within_the_budget(name, length, budget, group):
    selector = create(name)
    keys, queries = tensors(1, length, group)
    kept = selector.select(keys[0, 0], queries[0].flatten(0, 1)[:, None], budget)
    assert kept.shape == (2, selector.width(length, budget)) and kept.dtype is torch.int64
    assert kept.shape[1] <= min(length, selector.most(budget))
    for head in kept.tolist():
        assert head == sorted(set(head)) and head[0] >= 0 and head[-1] < length


def test_parts_of_a_batch_are_neighbours_of_similar_length():
    parts = split([0, 1, 2, 5], [100, 90, 10, 12], CPU)
    assert [(batch.start, batch.stop) for batch, _ in parts] == [(0, 2), (2, 3), (3, 4)]
    assert [(rows.first, rows.lengths) for _, rows in parts] == [
        (0, (100, 90)), (2, (10,)), (5, (12,)),
    ]  # fmt: skip


def deep(tiny, **changes):
    """Quest chooses from the third layer on."""
    return tiny(num_hidden_layers=4, **changes).ours


@dynamic
@pytest.mark.parametrize("attention", ["sdpa", "auto"])
def test_within_the_budget_every_draft_is_accepted(tiny, prompt, decode, name, attention):
    got = decode(
        deep(tiny), [prompt(45), prompt(20), prompt(1)], gamma=5, budget=200, max_new_tokens=49,
        ignore_eos=True, attention=attention, **options(name),
    )  # fmt: skip
    assert all(row.accepted == row.drafted for step in got.steps for row in step.rows)
    assert len(got.steps) == 48 // 6


@dynamic
@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("budget", [9, 30])
@pytest.mark.parametrize("draft", ["self", "layers:3"])
def test_greedy_text_is_plain_decodings(tiny, prompt, decode, name, gamma, budget, draft):
    """Rows of other lengths, of which some end early and make room for more."""
    prompts = [prompt(n) for n in (50, 1, 33, 2, 49)]
    common = dict(max_new_tokens=NEW)
    plain = decode(deep(tiny), prompts, gamma=0, **common)
    got = decode(
        deep(tiny), prompts, slots=3, gamma=gamma, budget=budget, draft=draft, **options(name),
        **common,
    )  # fmt: skip
    assert got.tokens == plain.tokens
    rows = [row for step in got.steps for row in step.rows]
    assert 0 < sum(r.accepted for r in rows) < sum(r.drafted for r in rows)


@dynamic
def test_sampled_text_depends_on_nothing_but_seed_and_row(tiny, prompt, decode, name):
    prompts = [prompt(n) for n in (50, 1, 33, 49)]
    common = dict(
        gamma=3, budget=9, max_new_tokens=NEW, ignore_eos=True, **options(name),
        sampling=SamplingConfig(temperature=1.0, top_p=0.9, seed=3),
    )  # fmt: skip
    together = decode(deep(tiny), prompts, slots=3, **common)
    for row in (0, 2):
        alone = decode(deep(tiny), [prompts[row]], rows=[row], **common)
        assert alone.tokens == [together.tokens[row]]


@dynamic
def test_search_is_charged_to_select(tiny, prompt, decode, name):
    got = decode(
        deep(tiny), [prompt(50), prompt(33)], gamma=3, budget=12, max_new_tokens=12,
        ignore_eos=True, **options(name),
    )  # fmt: skip
    for step in got.steps:
        if step.gamma:
            assert step.phases.select > 0 and step.phases.draft > 0


@dynamic
def test_the_forecast_has_the_index(tiny, prompt, decode, name):
    from magicdec.engine.memory.run_shape import capacity
    from magicdec.engine.views.make import make_view

    config = DecodeConfig(gamma=3, budget=12, max_new_tokens=10, **options(name))
    model = deep(tiny)
    engine = decode(
        model, [prompt(60), prompt(50)], capacity=capacity(config, 60), gamma=3, budget=12,
        max_new_tokens=10, **options(name),
    ).engine  # fmt: skip
    view = make_view(engine.cache, create(name), budget=12, context=60, growth=10, gamma=3)
    plan = forecast(
        RunShape(model.spec, config, 2, 60, 32, torch.float32, torch.float32, CPU), available=0
    )
    assert plan.index == view.chooser.index.nbytes
    assert (plan.index > 0) == (name in ("quest", "pqcache"))
    assert plan.total == sum(size for _, size in plan.lines())
    if name.startswith("reuse"):
        assert plan.draft_kv == view.store.k.nbytes + view.store.v.nbytes


class Crooked(DynamicSelector):
    """Returns too few positions, or fails."""

    fails = False

    def index(self, shape):
        return CrookedIndex()


class CrookedIndex(KeyIndex):
    def choose(self, layer, queries, keys, rows, budget):
        if Crooked.fails:
            raise KeyError("first line\nsecond")
        return rows.positions[:3].expand(*keys.shape[:2], -1)


@pytest.mark.parametrize(
    "fails,message",
    [(False, r"returned \[1, 2, 3\], not \[1, 2, 8\]"), (True, "failed in choose: KeyError")],
)
def test_a_strangers_mistake_is_named(tiny, prompt, decode, monkeypatch, fails, message):
    monkeypatch.setattr(Crooked, "fails", fails)
    with pytest.raises(MagicdecError, match=f"selector Crooked {message}") as error:
        decode(tiny().ours, [prompt(30)], selector=f"{__name__}:Crooked", budget=8)
    assert "\n" not in str(error.value)


def test_what_cannot_work_is_refused_in_one_line(tiny, prompt, decode):
    with pytest.raises(ConfigError, match="m=3 does not divide the model's head dimension of 16"):
        decode(tiny().ours, [prompt(9)], selector="pqcache", selector_options={"m": "3"})
    with pytest.raises(ConfigError, match="reuse chooses with the queries of the model that veri"):
        decode(tiny().ours, [prompt(9)], selector="reuse", draft="other", draft_decoder=tiny().ours)


@pytest.mark.parametrize(
    "name,given,message",
    [
        ("quest", {"page": "0"}, "page must be at least 1, got 0"),
        ("quest", {"pages": "0"}, "pages must be at least 1"),
        ("pqcache", {"bits": "9"}, r"bits must be in 1\.\.8, got 9"),
        ("pqcache", {"sample": "63"}, r"sample must be at least 2\^bits, 64, got 63"),
        ("pqcache", {"recent": "-1"}, "recent must be at least 0"),
        ("reuse", {"refresh": "0"}, "refresh must be at least 1, got 0"),
        ("topk", {"recent": "4"}, "topk has no option 'recent'; its options: none"),
    ],
)
def test_options_are_validated(name, given, message):
    with pytest.raises(ConfigError, match=message):
        SELECTORS.create(name, given)
