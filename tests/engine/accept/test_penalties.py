"""Penalties: by their definitions, and the same whoever drafts."""

from __future__ import annotations

import functools
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from magicdec.engine.accept.sampling import distribution
from magicdec.engine.config import SamplingConfig
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import Adaptive, Entry, Schedule

NEW = 24
RAGGED = (50, 1, 33, 2, 49)
COMMON = dict(max_new_tokens=NEW, ignore_eos=True)

PENALTIES = {
    "repetition": SamplingConfig(repetition_penalty=1.4),
    "liked again": SamplingConfig(repetition_penalty=0.6),
    "presence": SamplingConfig(presence_penalty=1.7),
    "frequency": SamplingConfig(frequency_penalty=1.3),
    "negative": SamplingConfig(presence_penalty=-0.9, frequency_penalty=-0.4),
    "all": SamplingConfig(repetition_penalty=1.2, presence_penalty=0.8, frequency_penalty=0.9),
}
#: Who drafts, and how.
WAYS = {
    "self": dict(selector="snapkv"),
    "self, whole": dict(selector="full"),
    "self, dynamic": dict(selector="topk"),
    "self, ring": dict(selector="streaming"),
    "layers": dict(draft="layers:1", selector="snapkv"),
    "model": dict(draft="other", draft_kv="full"),
    "model, sparse": dict(draft="other", selector="streaming"),
    "lookup": dict(draft="lookup"),
    "lookup under self": dict(draft="lookup+self", selector="streaming"),
    "layers under self": dict(draft="layers:1+self", selector="window"),
    "model under self": dict(draft="other+self", selector="snapkv"),
    "specexec": dict(tree="specexec", tree_nodes=12),
    "sequoia": dict(tree="sequoia", tree_nodes=12),
    "layers, specexec": dict(draft="layers:1", tree="specexec", tree_nodes=8),
    "layers, sequoia": dict(draft="layers:1", tree="sequoia", tree_nodes=8),
}
POLICIES = {
    "adaptive": Adaptive(0.5),
    "auto": Auto(),
    "schedule": Schedule((Entry(1, 1, 3), Entry(2, 1, 0), Entry(3, 1, 2), Entry(3, 45, 4))),
}


def penalised(logits, prompt, output, config) -> np.ndarray:
    """The definition, token by token, of one vector."""
    found = logits.double().numpy().copy()
    for token in {*prompt, *output}:
        factor = config.repetition_penalty
        found[token] = found[token] / factor if found[token] > 0 else found[token] * factor
    for token, count in Counter(output).items():
        found[token] -= config.frequency_penalty * count + config.presence_penalty
    return found


def other(tiny):
    """A model of the same vocabulary that knows nothing of the target."""
    return tiny("qwen2", seed=5, num_hidden_layers=1, num_key_value_heads=1).ours


def run(decode, tiny, prompts, sampling, **settings):
    return decode(
        tiny().ours, prompts, draft_decoder=other(tiny), budget=12, sampling=sampling,
        **COMMON, **settings,
    )  # fmt: skip


PLAIN: dict[str, list[list[int]]] = {}


def plain_tokens(decode, tiny, prompt, name):
    if name not in PLAIN:
        prompts = [prompt(n) for n in RAGGED]
        PLAIN[name] = run(decode, tiny, prompts, PENALTIES[name], gamma=0).tokens
    return PLAIN[name]


@pytest.mark.parametrize("penalty", [1.4, 0.6, 1.05])
@pytest.mark.parametrize("gamma", [0, 4])
def test_repetition_is_that_of_transformers(tiny, prompt, decode, penalty, gamma):
    prompts = [prompt(n, seed=3) for n in RAGGED]
    config = SamplingConfig(repetition_penalty=penalty)
    got = run(decode, tiny, prompts, config, gamma=gamma).tokens
    for text, tokens in zip(prompts, got, strict=True):
        theirs = tiny().theirs.generate(
            torch.tensor([text]), max_new_tokens=NEW, do_sample=False, eos_token_id=None,
            pad_token_id=0, repetition_penalty=penalty,
        )  # fmt: skip
        assert tokens == theirs[0, len(text) :].tolist()


@pytest.mark.parametrize("name", PENALTIES)
def test_plain_decoding_follows_the_definition(tiny, prompt, decode, name):
    prompts = [prompt(n) for n in RAGGED]
    got = run(decode, tiny, prompts, PENALTIES[name], gamma=0).tokens
    assert got != run(decode, tiny, prompts, SamplingConfig(), gamma=0).tokens
    for text, tokens in zip(prompts, got, strict=True):
        with torch.no_grad():
            every = tiny().theirs(torch.tensor([[*text, *tokens]])).logits[0]
        for i, token in enumerate(tokens):
            logits = penalised(every[len(text) - 1 + i], text, tokens[:i], PENALTIES[name])
            assert token == int(logits.argmax())


@pytest.mark.parametrize(
    "gamma,name", [(1, "all"), (4, "all"), (4, "liked again"), (3, "negative")]
)
@pytest.mark.parametrize("way", WAYS)
def test_greedy_text_is_plain_decodings_whoever_drafts(tiny, prompt, decode, way, gamma, name):
    prompts = [prompt(n) for n in RAGGED]
    got = run(decode, tiny, prompts, PENALTIES[name], gamma=gamma, slots=3, **WAYS[way])
    assert got.tokens == plain_tokens(decode, tiny, prompt, name)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", [way for way in WAYS if "tree" not in WAYS[way]])
def test_greedy_text_is_plain_decodings_however_long_drafts_are(tiny, prompt, decode, way, policy):
    if WAYS[way].get("draft") == "lookup" and policy == "adaptive":
        return  # refused: it has no probabilities
    got = run(
        decode, tiny, [prompt(n) for n in RAGGED], PENALTIES["all"], gamma=4, slots=3,
        gamma_policy=POLICIES[policy], **WAYS[way],
    )  # fmt: skip
    assert got.tokens == plain_tokens(decode, tiny, prompt, "all")


@pytest.mark.parametrize("tree", ["none", "specexec", "sequoia"])
@pytest.mark.parametrize("name", PENALTIES)
def test_a_draft_that_sees_everything_is_penalised_alike(tiny, prompt, decode, name, tree):
    """The control: a slip of what comes before a position would show as a rejection."""
    # Best-first trees hold the likeliest branch to its end only if they have room for many.
    gamma, nodes = (2, 100) if tree == "specexec" else (5, 15)
    got = run(
        decode, tiny, [prompt(45), prompt(20)], PENALTIES[name], gamma=gamma, selector="full",
        tree=tree, tree_nodes=nodes,
    )  # fmt: skip
    assert all(row.accepted == row.depth for step in got.steps for row in step.rows)


def test_a_seeds_text_over_specexec_is_plain_decodings(tiny, prompt, decode):
    prompts = [prompt(n) for n in RAGGED]
    sampling = SamplingConfig(
        temperature=0.9, seed=4, repetition_penalty=1.3, presence_penalty=0.7,
        frequency_penalty=0.6,
    )  # fmt: skip
    plain = run(decode, tiny, prompts, sampling, gamma=0)
    got = run(decode, tiny, prompts, sampling, gamma=4, slots=2, tree="specexec", tree_nodes=12)
    assert got.tokens == plain.tokens


SAMPLED = SamplingConfig(
    temperature=1.2, seed=11, top_p=0.97, repetition_penalty=1.3, presence_penalty=0.5,
    frequency_penalty=0.9,
)  # fmt: skip
WORDS, LENGTH, ROWS = 4, 4, 1200
TEXT = (3, 1, 0, 3, 1, 2, 3, 1)


@functools.cache
def exact(model) -> dict[tuple[int, ...], float]:
    """The probability of every text of LENGTH tokens, from one pass over all of them."""
    text = TEXT
    texts = list(itertools.product(range(WORDS), repeat=LENGTH))
    with torch.no_grad():
        every = model(torch.tensor([[*text, *said] for said in texts])).logits[:, len(text) - 1 :]
    chances = {}
    for said, logits in zip(texts, every, strict=True):
        chance = 1.0
        for i, token in enumerate(said):
            after = torch.from_numpy(penalised(logits[i], text, said[:i], SAMPLED))
            chance *= float(distribution(after, SAMPLED)[token])
        chances[said] = chance
    return chances


def few(tiny):
    """Of few words, and undecided."""
    return tiny(vocab_size=WORDS, seed=2, initializer_range=0.08)


@pytest.mark.parametrize(
    "way",
    [
        "plain", "self", "layers", "model", "lookup", "lookup under self", "model under self",
        "specexec", "sequoia",
    ],
)  # fmt: skip
def test_sampled_text_has_the_distribution_of_the_definition(tiny, decode, way):
    """All tokens of a row together: what each is drawn from depends on those before it."""
    model = few(tiny)
    chances = exact(model.theirs)
    assert sum(chances.values()) == pytest.approx(1)
    small = tiny("qwen2", seed=5, vocab_size=WORDS, num_hidden_layers=1).ours
    got = decode(
        model.ours, [TEXT] * ROWS, gamma=3 if way != "plain" else 0, budget=5,
        draft_decoder=small, sampling=SAMPLED, max_new_tokens=LENGTH, ignore_eos=True,
        **{"selector": "window"} | WAYS.get(way, {}),
    )  # fmt: skip
    counts = Counter(map(tuple, got.tokens))
    assert all(chances[said] > 0 for said in counts)
    # Seldom texts count as one.
    often = [said for said, chance in chances.items() if chance * ROWS >= 5]
    seen = [counts[said] for said in often]
    expected = [chances[said] * ROWS for said in often]
    assert len(often) > 40 and sum(expected) > 0.7 * ROWS
    rest = ROWS - sum(seen), ROWS - sum(expected)
    assert chisquare([*seen, rest[0]], [*expected, rest[1]]).pvalue > 1e-3


@pytest.mark.parametrize(
    "setting",
    [
        {"repetition_penalty": 0.0}, {"repetition_penalty": -1.0}, {"repetition_penalty": 1e9},
        {"repetition_penalty": float("nan")}, {"presence_penalty": 2.1},
        {"presence_penalty": float("nan")}, {"frequency_penalty": -2.5},
    ],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused(setting):
    (name,) = setting
    with pytest.raises(ConfigError, match=f"{name.replace('_', '-')} must be in .* being off"):
        SamplingConfig(**setting)
