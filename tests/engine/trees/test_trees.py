"""Speculation over trees gives the target's own text, or exactly its distribution."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.make import make_drafter, make_tree_rule
from magicdec.engine.errors import ConfigError
from magicdec.engine.memory.plan import require_fit
from magicdec.engine.memory.run_shape import RunShape, capacity
from magicdec.engine.report import Recorder
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.step import speculative_step
from magicdec.engine.trees.specexec import SpecExec
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")
NEW = 24
RAGGED = (50, 1, 33, 2, 49)
KINDS = ("specexec", "sequoia")
kinds = pytest.mark.parametrize("tree", KINDS)
DYNAMIC = [n for n in SELECTORS.names() if issubclass(SELECTORS.load(n), DynamicSelector)]
STATIC = [name for name in SELECTORS.names() if name not in DYNAMIC]


@kinds
@pytest.mark.parametrize("nodes,gamma", [(1, 3), (4, 1), (8, 3), (24, 5)])
@pytest.mark.parametrize("selector", STATIC)
def test_greedy_text_is_plain_decodings(tiny, prompt, decode, tree, nodes, gamma, selector):
    prompts = [prompt(n) for n in RAGGED]
    common = dict(max_new_tokens=NEW, ignore_eos=True)
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(
        tiny().ours, prompts, slots=3, gamma=gamma, budget=12, selector=selector, tree=tree,
        tree_nodes=nodes, **common,
    )  # fmt: skip
    assert got.tokens == plain.tokens
    for step in got.steps:
        assert step.gamma <= gamma
        for row in step.rows:
            assert 0 <= row.accepted <= row.depth <= min(step.gamma, row.drafted)
            assert row.drafted <= nodes


@kinds
@pytest.mark.parametrize("kind", ["mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("selector", ["snapkv", "full"])
def test_other_architectures_and_short_windows(tiny, prompt, decode, tree, kind, selector):
    model = tiny(kind, **({"sliding_window": 7} if kind == "mistral" else {})).ours
    prompts = [prompt(n) for n in (40, 13, 3)]
    common = dict(max_new_tokens=NEW, ignore_eos=True, selector=selector, budget=16)
    plain = decode(model, prompts, gamma=0, **common)
    for attention in ("sdpa", "reference"):
        got = decode(
            model, prompts, gamma=5, tree=tree, tree_nodes=12, attention=attention, **common
        )
        assert got.tokens == plain.tokens


@kinds
def test_dynamic_rope_beyond_the_trained_window(tiny, prompt, decode, tree):
    rope = (("rope_type", "dynamic"), ("factor", 2.0))
    model = tiny("llama", rope=rope, max_position_embeddings=32).ours
    prompts = [prompt(40), prompt(30), prompt(25)]
    common = dict(max_new_tokens=NEW, ignore_eos=True, selector="full")
    plain = decode(model, prompts, gamma=0, **common)
    assert decode(model, prompts, gamma=4, tree=tree, **common).tokens == plain.tokens


@kinds
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_draft_that_sees_everything_is_followed_to_the_bottom(tiny, prompt, decode, tree, kind):
    """The control: any slip of positions, masks or moved entries would show as a rejection."""
    model = tiny(kind, **({"sliding_window": 9} if kind == "mistral" else {})).ours
    # Best-first trees hold the likeliest branch to its end only if they have room for many.
    gamma, nodes = {"sequoia": (5, 15), "specexec": (2, 100)}[tree]
    got = decode(
        model, [prompt(45), prompt(20)], gamma=gamma, tree=tree, tree_nodes=nodes,
        selector="full", max_new_tokens=49, ignore_eos=True,
    )  # fmt: skip
    assert all(row.accepted == row.depth for step in got.steps for row in step.rows)
    assert len(got.steps) == 48 // (gamma + 1)


@kinds
def test_a_draft_of_the_first_layers(tiny, prompt, decode, tree):
    prompts = [prompt(n) for n in RAGGED]
    common = dict(max_new_tokens=NEW, ignore_eos=True, draft="layers:1", selector="streaming")
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(tiny().ours, prompts, gamma=4, budget=12, tree=tree, **common)
    assert got.tokens == plain.tokens


def test_a_tree_is_accepted_from_further_than_its_first_branch(tiny, prompt, decode):
    """Losslessness would prove little if what is drafted besides the likeliest never counted."""
    common = dict(gamma=3, selector="window", budget=40, max_new_tokens=60, ignore_eos=True)

    def length(**tree: object) -> float:
        got = decode(tiny().ours, [prompt(60, s) for s in range(4)], **common, **tree)
        rows = [row for step in got.steps for row in step.rows]
        return sum(row.accepted for row in rows) / len(rows)

    chain = length()
    for tree in KINDS:
        assert length(tree=tree, tree_nodes=3) < 1.3 * chain
        assert length(tree=tree, tree_nodes=48) > 1.3 * chain, chain


@kinds
def test_every_row_stops_at_its_limit_and_at_eos(tiny, prompt, decode, tree):
    prompts = [prompt(n) for n in RAGGED]
    for new in (1, 2, 3, 7):
        common = dict(max_new_tokens=new)
        plain = decode(tiny().ours, prompts, gamma=0, **common)
        got = decode(tiny().ours, prompts, gamma=5, tree=tree, budget=12, slots=2, **common)
        assert (got.tokens, got.reasons, got.texts) == (plain.tokens, plain.reasons, plain.texts)
    stop = " ".join(plain.texts[0].split()[2:4])
    common = dict(max_new_tokens=9, stop=(stop,))
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(tiny().ours, prompts, gamma=5, tree=tree, selector="full", **common)
    assert (got.tokens, got.reasons, got.texts) == (plain.tokens, plain.reasons, plain.texts)
    assert "stop" in plain.reasons


@kinds
@pytest.mark.parametrize("nodes,gamma", [(9, 8), (33, 32)])
@pytest.mark.parametrize("selector", ["snapkv", "full"])
def test_a_row_near_its_limit_has_room_for_what_its_mates_are_fed(
    tiny, prompt, decode, tree, nodes, gamma, selector
):
    """Passes feed whole generations, together more nodes than a tree keeps."""
    common = dict(max_new_tokens=NEW, ignore_eos=True)
    settings = dict(
        gamma=gamma, tree=tree, tree_nodes=nodes, selector=selector, budget=200, **common
    )
    prompts = [prompt(n) for n in (60, 3, 40, 9)]
    room = capacity(DecodeConfig(**settings), 60)
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(tiny().ours, prompts, slots=3, capacity=room, **settings)
    assert got.tokens == plain.tokens


@pytest.mark.parametrize("way", [{"tree": "sequoia"}, {"draft": "lookup+self"}])
@pytest.mark.parametrize("selector", DYNAMIC)
def test_the_forecast_refuses_selectors_that_choose_again(tiny, way, selector):
    """It comes before anything is decoded: a run must not fail after its plain half."""
    config = DecodeConfig(selector=selector, **way)
    with pytest.raises(ConfigError, match=f"chosen once, and selector {selector} "):
        require_fit(
            RunShape(tiny().ours.spec, config, 2, 20, 8, torch.float32, torch.float32, CPU), 10**12
        )


@pytest.mark.parametrize("nodes,depth", [(1, 1), (1, 32), (9, 8), (33, 32), (128, 5), (100, 32)])
def test_settings_know_what_specexec_feeds(nodes, depth):
    grower = SpecExec(nodes, depth)
    config = DecodeConfig(gamma=depth, tree="specexec", tree_nodes=nodes)
    assert config.scratch == max(nodes, 1 + (grower.height - 1) * grower.beam)
    assert grower.height * grower.beam >= nodes


SAMPLED = SamplingConfig(temperature=0.9, top_p=0.9, seed=5)


@kinds
def test_a_row_depends_on_its_own_seed_and_text_only(tiny, prompt, decode, tree):
    """Also where its mates have more left to say than it has, or less."""
    prompts = [prompt(n) for n in (60, 8, 9, 10, 11)]
    settings = dict(
        gamma=4, tree=tree, tree_nodes=12, selector="streaming", budget=8, max_new_tokens=20,
        sampling=SAMPLED,
    )  # fmt: skip
    together = decode(tiny().ours, prompts, **settings)
    waiting = decode(tiny().ours, prompts, slots=2, **settings)
    alone = [decode(tiny().ours, [p], rows=[i], **settings) for i, p in enumerate(prompts)]
    assert together.tokens == waiting.tokens == [run.tokens[0] for run in alone]


def test_specexec_samples_what_plain_decoding_samples(tiny, prompt, decode):
    """It draws at every node with the numbers that plain decoding would draw with."""
    prompts = [prompt(n) for n in RAGGED]
    common = dict(max_new_tokens=NEW, sampling=SAMPLED, selector="streaming", budget=20)
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(tiny().ours, prompts, gamma=4, tree="specexec", tree_nodes=20, **common)
    assert got.tokens == plain.tokens
    assert any(row.accepted for step in got.steps for row in step.rows)


def fresh(model, text):
    cache = KVCache(model, get_backend("sdpa", CPU), rows=1, capacity=200)
    list(prefill(model, cache, 0, text, chunk=200))
    return cache


@kinds
@pytest.mark.parametrize("selector", ["snapkv", "streaming", "full"])
def test_after_a_step_both_caches_hold_the_accepted_branch(tiny, prompt, tokenizer, tree, selector):
    """The full cache is that of a fresh prefill; the draft's view took its new entries from it."""
    model, prompts = tiny().ours, [prompt(60), prompt(23)]
    config = DecodeConfig(
        max_new_tokens=60, gamma=3, tree=tree, tree_nodes=40, selector=selector, budget=50,
        ignore_eos=True, draft_weights="same",
    )  # fmt: skip
    cache = KVCache(model, get_backend("sdpa", CPU), rows=2, capacity=200)
    drafter = make_drafter(cache, config, None, context=60, chunk=16, clock=Clock())
    rule = make_tree_rule(config, slots=2, positions=64, device=CPU)
    rows, paths = [], set()
    for slot, tokens in enumerate(prompts):
        list(prefill(model, cache, slot, tokens, chunk=16))
        rows.append(Row(Request("doc", tokens, slot), slot, config, tokenizer, ()))
        rows[-1].take([int(cache.prompts[slot].logits.argmax())])
        drafter.admit(slot)
    for _ in range(7):
        kept = [cache.lengths[slot] for slot in (0, 1)]
        outcomes = speculative_step(model, cache, drafter, rule, rows, [3, 3], Clock())
        for row, outcome in zip(rows, outcomes, strict=True):
            row.take(outcome.tokens)
            paths.update(outcome.tree.tried)
            text = (*row.request.tokens, *row.tokens[:-1])
            length = cache.lengths[row.slot]
            assert length == len(text) == kept[row.slot] + 1 + outcome.accepted
            want = fresh(model, text)
            for ours, theirs in ((cache.k, want.k), (cache.v, want.v)):
                torch.testing.assert_close(
                    ours[:, row.slot, :, :length], theirs[:, 0, :, :length], rtol=1e-4, atol=1e-4
                )
            if selector == "snapkv":
                store, entries = drafter._view.store, drafter.entries(row.slot)
                added = 1 + outcome.accepted
                assert torch.equal(
                    store.k[:, row.slot, :, entries - added : entries],
                    cache.k[:, row.slot, :, length - added : length],
                )
    if selector != "full":  # which drafts what the target says
        assert any(child > 1 for child, _ in paths), "no branch but the first was ever taken"
        assert any(child == 0 for child, _ in paths), "nothing was ever rejected"


def test_a_report_counts_nodes_depths_and_siblings(tiny, prompt, decode):
    got = decode(
        tiny().ours, [prompt(40), prompt(20)], gamma=2, tree="sequoia", tree_shape=(0, 0, 1),
        selector="window", budget=38, max_new_tokens=21, ignore_eos=True,
    )  # fmt: skip
    recorder = Recorder()
    for event in got.events:
        recorder.add(event)
    tally = recorder.tally()
    rows = [row for step in got.steps for row in step.rows]
    full = [row for row in rows if row.depth == 2]
    assert {row.drafted for row in full} == {3}
    assert tally.num_draft_tokens == sum(row.drafted for row in rows)
    length = 1 + sum(r.accepted for r in rows) / tally.num_spec_steps
    assert tally.mean_acceptance_length == pytest.approx(length)
    assert tally.drafted_per_position[1] == len(full)
    assert len(tally.histogram) == 3 and sum(tally.histogram) == tally.num_spec_steps
    # Every speculative step tries the root's first child; the second only after that.
    tried, accepted = tally.siblings_tried, tally.siblings_accepted
    assert len(tried) == 2 and tried[0] >= tally.num_spec_steps > tried[1]
    assert tried[1] <= tried[0] - accepted[0]
    assert sum(accepted) == tally.num_accepted_draft_tokens
    assert tally.sibling_acceptance == tuple(a / t for a, t in zip(accepted, tried, strict=True))
