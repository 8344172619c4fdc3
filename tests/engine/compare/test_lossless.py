"""Greedy speculative decoding gives plain decoding's tokens, whatever the draft sees."""

from __future__ import annotations

import functools

import pytest
import torch

from magicdec.engine.selection import SELECTORS

NEW = 24
LENGTHS = {1: (50,), 3: (50, 50, 50), 5: (50, 7, 33, 3, 49)}  # by batch; 5 is ragged
BUDGETS = {"below": 12, "equal": 50, "above": 200}


@functools.cache
def transformers_greedy(tiny, prompt: tuple[int, ...], new: int = NEW) -> list[int]:
    theirs = tiny().theirs
    out = theirs.generate(
        torch.tensor([prompt]), max_new_tokens=new, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("gamma", [0, 1, 4, 7])
@pytest.mark.parametrize("batch", LENGTHS)
@pytest.mark.parametrize("selector", SELECTORS.names())
def test_greedy_equals_transformers(tiny, prompt, decode, selector, batch, gamma, budget):
    prompts = [prompt(n, seed=i) for i, n in enumerate(LENGTHS[batch])]
    got = decode(
        tiny().ours, prompts, gamma=gamma, budget=BUDGETS[budget], selector=selector,
        max_new_tokens=NEW, ignore_eos=True,
    )  # fmt: skip
    assert got.tokens == [transformers_greedy(tiny, p) for p in prompts]
    assert got.reasons == ["length"] * batch
    for step in got.steps:
        assert all(0 <= r.accepted <= r.drafted <= step.gamma <= gamma for r in step.rows)


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("selector", SELECTORS.names())
def test_other_architectures_are_lossless(tiny, prompt, decode, kind, selector):
    model = tiny(kind, **({"sliding_window": 20} if kind == "mistral" else {})).ours
    prompts = [prompt(n) for n in (40, 13)]
    settings = dict(selector=selector, budget=16, max_new_tokens=NEW, ignore_eos=True)
    plain = decode(model, prompts, gamma=0, **settings)
    assert decode(model, prompts, gamma=4, **settings).tokens == plain.tokens


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_full_draft_accepts_everything(tiny, prompt, decode, kind):
    """The control: a draft that sees the whole cache predicts what the target says."""
    model = tiny(kind, **({"sliding_window": 20} if kind == "mistral" else {})).ours
    got = decode(
        model, [prompt(45), prompt(20)], gamma=5, selector="full", max_new_tokens=49,
        ignore_eos=True,
    )  # fmt: skip
    assert all(row.accepted == row.drafted for step in got.steps for row in step.rows)
    assert len(got.steps) == 48 // 6


def test_dynamic_rope_beyond_the_trained_window_is_lossless(tiny, prompt, decode):
    rope = (("rope_type", "dynamic"), ("factor", 2.0))
    model = tiny("llama", rope=rope, max_position_embeddings=32).ours
    prompts = [prompt(40), prompt(30), prompt(25)]
    plain = decode(model, prompts, gamma=0, max_new_tokens=NEW, ignore_eos=True)
    for selector in ("full", "streaming"):
        got = decode(
            model, prompts, gamma=4, selector=selector, budget=12, max_new_tokens=NEW,
            ignore_eos=True,
        )  # fmt: skip
        assert got.tokens == plain.tokens


def test_attention_backends_agree(tiny, prompt, decode):
    prompts = [prompt(n) for n in (50, 8, 21)]
    settings = dict(gamma=3, budget=12, max_new_tokens=NEW, ignore_eos=True)
    runs = [
        decode(tiny().ours, prompts, attention=name, **settings) for name in ("sdpa", "reference")
    ]
    assert runs[0].tokens == runs[1].tokens


def test_a_poor_draft_is_rejected_often_and_a_better_one_less(tiny, prompt, decode):
    """The matrix above would prove little if every draft were accepted."""

    def rate(budget: int) -> float:
        got = decode(
            tiny().ours, [prompt(60, s) for s in range(4)], gamma=3, selector="window",
            budget=budget, max_new_tokens=NEW, ignore_eos=True,
        )  # fmt: skip
        rows = [row for step in got.steps for row in step.rows]
        return sum(r.accepted for r in rows) / sum(r.drafted for r in rows)

    poor, middling, whole = rate(2), rate(57), rate(84)
    assert poor < 0.5 * middling and middling < 0.9
    assert whole == 1.0
