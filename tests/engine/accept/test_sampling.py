"""Sampling is exact: what comes out is distributed as the target, whatever the draft was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

from magicdec.engine.accept.chain import Greedy, Proposal, Rejection
from magicdec.engine.accept.sampling import Noise, distribution, draw
from magicdec.engine.config import SamplingConfig
from magicdec.engine.errors import ConfigError

CPU = torch.device("cpu")
V = 12
TRIALS = 40_000
SETTINGS = {
    "T=1": SamplingConfig(temperature=1.0),
    "T=.7": SamplingConfig(temperature=0.7),
    "top-p": SamplingConfig(temperature=1.0, top_p=0.8),
    "top-k": SamplingConfig(temperature=1.0, top_k=4),
    "min-p": SamplingConfig(temperature=1.0, min_p=0.2),
    "all": SamplingConfig(temperature=0.8, top_k=8, top_p=0.9, min_p=0.05),
}


def naive_distribution(logits: np.ndarray, config: SamplingConfig) -> np.ndarray:
    """The definition, for one vector, in float64: keep tokens one filter after the other."""
    p = np.exp(logits / config.temperature - np.max(logits / config.temperature))
    p /= p.sum()
    order = np.argsort(-p)
    if config.top_k:
        p[order[config.top_k :]] = 0
        p /= p.sum()
    if config.top_p < 1:
        kept, mass = [], 0.0
        for token in order:
            if mass < config.top_p:
                kept.append(token)
            mass += p[token]
        p = np.where(np.isin(np.arange(len(p)), kept), p, 0)
        p /= p.sum()
    if config.min_p:
        p = np.where(p >= config.min_p * p.max(), p, 0)
        p /= p.sum()
    return p


def logits(seed: int) -> torch.Tensor:
    return 1.5 * torch.randn(V, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SETTINGS)
def test_distribution_follows_its_definition(name):
    for seed in range(20):
        got = distribution(logits(seed)[None, None], SETTINGS[name])[0, 0].numpy()
        want = naive_distribution(logits(seed).double().numpy(), SETTINGS[name])
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_small_temperature_does_not_overflow():
    config = SamplingConfig(temperature=0.001)
    probs = distribution(1e3 * logits(1), config)
    assert probs[logits(1).argmax()] == 1.0 and probs.sum() == 1.0


def test_equal_values_at_a_cut_off_stay_together():
    flat = torch.zeros(1, V)
    for config in (SETTINGS["top-k"], SETTINGS["top-p"], SETTINGS["min-p"]):
        np.testing.assert_allclose(distribution(flat, config)[0].numpy(), 1 / V, rtol=1e-6)


def emitted(
    config: SamplingConfig, target: torch.Tensor, draft: torch.Tensor, drafted: int = 2
) -> np.ndarray:
    """The first token of TRIALS independent steps that draft from `draft`."""
    noise = Noise(7, TRIALS, 3, CPU)
    for slot in range(TRIALS):
        noise.admit(slot, slot)
    rule = Rejection(config, noise)
    rule.begin(range(TRIALS), [0] * TRIALS, [drafted] * TRIALS)
    drawn = [rule.draft(draft.expand(TRIALS, V), ahead) for ahead in range(drafted)]
    tokens, probs = (torch.stack(part, dim=1) for part in zip(*drawn, strict=True))
    verdict = rule.accept(Proposal(tokens, probs), target.expand(TRIALS, drafted + 1, V))
    first = torch.where(verdict.accepted > 0, tokens[:, 0], verdict.next)
    return first.numpy()


DRAFTS = {
    "agrees": lambda target: target,
    "partly": lambda target: 0.5 * target + logits(99),
    "never": lambda target: torch.where(target >= target.max(), -1e9, -target),
}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_first_token_is_distributed_as_the_target(name, draft):
    config, target = SETTINGS[name], logits(3)
    p = naive_distribution(target.double().numpy(), config)
    counts = np.bincount(emitted(config, target, DRAFTS[draft](target)), minlength=V)
    assert counts[p == 0].sum() == 0
    assert chisquare(counts[p > 0], TRIALS * p[p > 0]).pvalue > 1e-3


def test_disjoint_support_is_never_accepted():
    config, target = SamplingConfig(temperature=1.0), torch.full((V,), -1e9)
    target[:4] = 0.0
    draft = torch.full((V,), -1e9)
    draft[4:] = 0.0
    counts = np.bincount(emitted(config, target, draft), minlength=V)
    assert chisquare(counts[:4]).pvalue > 1e-3
    assert counts[4:].sum() == 0


def test_an_agreeing_draft_is_always_accepted_and_the_residual_is_guarded():
    config = SamplingConfig(temperature=1.0)
    noise = Noise(1, 1, 3, CPU)
    noise.admit(0, 0)
    rule = Rejection(config, noise)
    rule.begin([0], [0], [2])
    q = distribution(logits(5)[None], config)
    tokens = torch.stack([rule.draft(logits(5)[None], ahead)[0] for ahead in range(2)], dim=1)
    proposal = Proposal(tokens, q.expand(1, 2, V))
    assert rule.accept(proposal, logits(5).expand(1, 3, V)).accepted.item() == 2
    # A rejection although p = q, as rounding can produce: the draw must come from p, not from 0.
    rule._u[..., 1] = 1.5
    verdict = rule.accept(proposal, logits(5).expand(1, 3, V))
    assert verdict.accepted.item() == 0
    assert 0 <= verdict.next.item() < V


def test_draw_inverts_the_cdf_and_never_returns_an_impossible_token():
    weights = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0])
    u = torch.tensor([0.0, 0.24, 0.26, 0.99, 1.0 - 2**-53], dtype=torch.float64)
    assert draw(weights.expand(5, 5), u).tolist() == [1, 1, 3, 3, 3]


def test_whole_engine_samples_as_plain_decoding(tiny, prompt, decode):
    """Two tokens deep: the joint distribution of speculative rows equals plain rows'."""
    model = tiny("llama", vocab_size=128, initializer_range=0.05).ours
    text = prompt(12)
    settings = dict(max_new_tokens=3, ignore_eos=True, selector="window", budget=2)
    from magicdec.engine.config import SamplingConfig as Config

    def tokens(gamma: int, seed: int) -> np.ndarray:
        runs = decode(
            model, [text] * 1500, slots=1500, gamma=gamma,
            sampling=Config(temperature=0.5, top_k=3, seed=seed), **settings,
        )  # fmt: skip
        return np.array(runs.tokens)

    plain, speculative = tokens(0, 1), tokens(2, 2)
    for column in (1, 2):
        values = np.union1d(plain[:, column], speculative[:, column])
        table = np.array(
            [[(rows[:, column] == v).sum() for v in values] for rows in (plain, speculative)]
        )
        table = table[:, table.sum(axis=0) >= 10]
        assert chi2_contingency(table).pvalue > 1e-3


def test_a_row_depends_on_its_own_seed_and_text_only(tiny, prompt, decode):
    model = tiny().ours
    prompts = [prompt(60), prompt(8), prompt(9), prompt(10), prompt(11)]
    settings = dict(
        gamma=4, selector="streaming", budget=8, max_new_tokens=20,
        sampling=SamplingConfig(temperature=0.9, seed=5),
    )  # fmt: skip
    together = decode(model, prompts, **settings)
    again = decode(model, prompts, **settings)
    alone = [decode(model, [p], rows=[i], **settings).tokens[0] for i, p in enumerate(prompts)]
    assert together.tokens == again.tokens == alone
    other = {**settings, "sampling": SamplingConfig(temperature=0.9, seed=6)}
    assert decode(model, prompts, **other).tokens != together.tokens
    same_text = decode(model, [prompts[0]] * 2, **settings)
    assert same_text.tokens[0] != same_text.tokens[1]  # rows have seeds of their own


def test_a_row_that_drafts_less_than_its_mates_gets_its_bonus_from_the_target():
    config, target = SETTINGS["T=1"], logits(3)
    noise = Noise(3, TRIALS, 3, CPU)
    for slot in range(TRIALS):
        noise.admit(slot, slot)
    rule = Rejection(config, noise)
    rule.begin(range(TRIALS), [0] * TRIALS, [2] + [0] * (TRIALS - 1))
    tokens, q = rule.draft(DRAFTS["partly"](target).expand(TRIALS, V), 0)
    proposal = Proposal(tokens[:, None].expand(-1, 2), q[:, None].expand(-1, 2, -1))
    verdict = rule.accept(proposal, target.expand(TRIALS, 3, V))
    assert verdict.accepted[1:].max() == 0
    counts = np.bincount(verdict.next[1:].numpy(), minlength=V)
    p = naive_distribution(target.double().numpy(), config)
    assert chisquare(counts, (TRIALS - 1) * p).pvalue > 1e-3


def test_greedy_rule_recovers_and_gives_a_bonus():
    target = torch.full((2, 3, V), 0.0)
    for row, ids in enumerate(([4, 5, 6], [4, 7, 6])):
        target[row, range(3), ids] = 1.0
    rule = Greedy()
    rule.begin([0, 1], [0, 0], [2, 2])
    verdict = rule.accept(Proposal(torch.tensor([[4, 5], [4, 5]])), target)
    assert (verdict.accepted.tolist(), verdict.next.tolist()) == ([2, 1], [6, 7])
    rule.begin([0, 1], [0, 0], [1, 0])
    verdict = rule.accept(Proposal(torch.tensor([[4, 5], [4, 5]])), target)
    assert (verdict.accepted.tolist(), verdict.next.tolist()) == ([1, 0], [5, 4])


@pytest.mark.parametrize(
    "setting",
    [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}, {"seed": 3}],
    ids=lambda s: next(iter(s)),
)
def test_a_setting_that_greedy_would_ignore_is_refused(setting):
    with pytest.raises(ConfigError, match="no effect at temperature 0"):
        SamplingConfig(temperature=0.0, **setting)


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": 1e-39}, {"temperature": -1.0}, {"temperature": float("nan")},
        {"top_k": -1}, {"top_p": 0.0},
        {"top_p": 1.1}, {"min_p": -0.1}, {"min_p": 2.0}, {"seed": -1},
    ],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused(setting):
    with pytest.raises(ConfigError, match=r"must be in|must be 0"):
        SamplingConfig(**{"temperature": 1.0, **setting})
