"""Speculation over trees gives the target's own text, or exactly its distribution."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.config import SamplingConfig
from magicdec.engine.selectors.base import SELECTORS

CPU = torch.device("cpu")
NEW = 24
RAGGED = (50, 1, 33, 2, 49)
KINDS = ("specexec", "sequoia")
kinds = pytest.mark.parametrize("tree", KINDS)


@kinds
@pytest.mark.parametrize("nodes,gamma", [(1, 3), (4, 1), (8, 3), (24, 5)])
@pytest.mark.parametrize("selector", SELECTORS.names())
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
