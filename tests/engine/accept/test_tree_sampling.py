"""What comes out of a tree is distributed exactly as the target, whatever the draft was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare

from magicdec.engine.accept.sampling import ACCEPT, distribution, sibling
from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.make import make_grower, make_tree_rule

CPU = torch.device("cpu")
V = 6
TRIALS = 30_000
#: A node with three children, one of them with two and another with one.
SHAPE = (0, 0, 0, 1, 1, 2)
SETTINGS = {
    "T=1": SamplingConfig(temperature=1.0),
    "top-k": SamplingConfig(temperature=0.8, top_k=3),
}


def logits(seed: int) -> torch.Tensor:
    return 1.5 * torch.randn(V, generator=torch.Generator().manual_seed(seed))


def target_logits(last: torch.Tensor) -> torch.Tensor:
    """The target's logits after each token: it looks one token back."""
    table = torch.stack([logits(100 + token) for token in range(V)])
    return table[last]


def only(*tokens: int) -> torch.Tensor:
    """Logits of a draft that knows no other tokens."""
    return torch.full((V,), -torch.inf).index_fill(0, torch.tensor(tokens), 0.0)


#: What the draft would say, by what the target would say.
DRAFTS = {
    "agrees": lambda target: target,
    "partly": lambda target: 0.5 * target + logits(99),
    "opposes": lambda target: -2 * target,
    "one token": lambda target: only(2).expand_as(target),  # fewer than a node has children
    "two tokens": lambda target: only(1, 4).expand_as(target),
    "few of the target's": lambda target: torch.where(
        target >= target.amax(-1, keepdim=True), -torch.inf, target
    ),
}


def step(config: SamplingConfig, tree: str, draft, trials=TRIALS, limits=None):
    """The tokens of `trials` independent steps from token 0: [trials, 3], -1 where it ended."""
    settings = DecodeConfig(
        gamma=2, tree=tree, tree_nodes=6, tree_shape=SHAPE if tree == "sequoia" else (),
        sampling=config,
    )  # fmt: skip
    rule = make_tree_rule(settings, slots=trials, positions=3, device=CPU)
    for slot in range(trials):
        rule.admit(slot, slot)
    rule.begin(range(trials), [0] * trials, limits or [2] * trials)
    pending = torch.zeros(trials, 1, dtype=torch.int64)
    growth = make_grower(settings).begin(pending, rule)
    for _ in range(2):
        growth.expand(draft(target_logits(growth.fed)))
    proposal = growth.proposal()
    fed = torch.cat((pending, proposal.tokens), dim=1)
    verdict = rule.accept(proposal, target_logits(fed))
    said = fed.gather(1, verdict.path)
    out = torch.full((trials, 3), -1)
    for depth in range(2):
        out[:, depth] = torch.where(verdict.accepted > depth, said[:, depth], -1)
    out.scatter_(1, verdict.accepted[:, None], verdict.next[:, None])
    return out.numpy(), verdict.accepted.numpy(), proposal


def check(tokens: np.ndarray, last: int, config: SamplingConfig) -> None:
    """They are drawn as the target would draw after `last`."""
    p = distribution(target_logits(torch.tensor(last)), config).double().numpy()
    counts = np.bincount(tokens, minlength=V)
    assert counts[p == 0].sum() == 0
    if (p > 0).sum() > 1:
        assert chisquare(counts[p > 0], len(tokens) * p[p > 0] / p.sum()).pvalue > 1e-4


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("tree", ["specexec", "sequoia"])
def test_every_token_is_distributed_as_the_target(tree, name, draft):
    config = SETTINGS[name]
    out, accepted, _ = step(config, tree, DRAFTS[draft])
    check(out[:, 0], 0, config)
    for depth in (1, 2):  # given that the step came this far, whatever it said before
        for last in range(V):
            reached = out[(out[:, depth] >= 0) & (out[:, depth - 1] == last)]
            if len(reached) > 200:
                check(reached[:, depth], last, config)
    if draft == "agrees" and tree == "sequoia":
        assert accepted.min() == 2  # the first child is always taken, and nothing is left of p


def test_a_draft_of_other_tokens_is_never_accepted():
    """The target's top-k leaves it three tokens; the draft knows the three others."""
    config = SETTINGS["top-k"]

    def others(target: torch.Tensor) -> torch.Tensor:
        return torch.where(target >= target.topk(3).values[..., -1:], -torch.inf, target)

    out, accepted, _ = step(config, "sequoia", others)
    assert accepted.max() == 0
    check(out[:, 0], 0, config)


def test_the_residual_that_is_all_zero_is_guarded():
    """Rejections although p = q, as rounding can produce: the draw must come from p, not from 0."""
    config = SETTINGS["T=1"]
    settings = DecodeConfig(gamma=2, tree="sequoia", tree_shape=SHAPE, sampling=config)
    rule = make_tree_rule(settings, slots=TRIALS, positions=3, device=CPU)
    for slot in range(TRIALS):
        rule.admit(slot, slot)
    rule.begin(range(TRIALS), [0] * TRIALS, [2] * TRIALS)
    growth = make_grower(settings).begin(torch.zeros(TRIALS, 1, dtype=torch.int64), rule)
    for _ in range(2):
        growth.expand(target_logits(growth.fed))
    proposal = growth.proposal()
    for rank in range(3):
        rule._u[..., sibling(ACCEPT, rank)] = 100.0
    fed = torch.cat((torch.zeros(TRIALS, 1, dtype=torch.int64), proposal.tokens), dim=1)
    verdict = rule.accept(proposal, target_logits(fed))
    assert verdict.accepted.max() == 0
    assert verdict.next.min() >= 0 and verdict.next.max() < V


def test_children_are_drawn_without_replacement():
    """In order: the k-th from what is left of q, renormalised."""
    config = SETTINGS["T=1"]
    _, _, proposal = step(config, "sequoia", DRAFTS["partly"])
    children = proposal.tokens[:, :3].numpy()
    q = distribution(DRAFTS["partly"](target_logits(torch.tensor(0))), config).double().numpy()
    assert all(len(set(row)) == 3 for row in children[:500])
    assert chisquare(np.bincount(children[:, 0], minlength=V), TRIALS * q / q.sum()).pvalue > 1e-4
    for first in range(V):
        second = children[children[:, 0] == first, 1]
        left = np.where(np.arange(V) == first, 0, q)
        if len(second) > 200:
            counts = np.bincount(second, minlength=V)
            want = len(second) * left / left.sum()
            assert counts[first] == 0
            assert chisquare(counts[left > 0], want[left > 0]).pvalue > 1e-4


@pytest.mark.parametrize("tree", ["specexec", "sequoia"])
def test_a_row_near_its_limit_takes_no_more_and_the_same(tree):
    """Its own branches end where it must; what it says until there stays what it was."""
    limits = [2, 1, 0] * 100
    full, _, _ = step(SETTINGS["T=1"], tree, DRAFTS["partly"], 300)
    cut, accepted, proposal = step(SETTINGS["T=1"], tree, DRAFTS["partly"], 300, limits)
    shares = proposal.shares(limits, [[] for _ in limits])
    assert all(tree.depth <= limit for (_, tree), limit in zip(shares, limits, strict=True))
    assert (accepted <= np.array(limits)).all()
    np.testing.assert_array_equal(full[0::3], cut[0::3])
    if tree == "specexec":
        np.testing.assert_array_equal(full[:, 0], cut[:, 0])


def test_whole_engine_samples_sequoia_as_plain_decoding(tiny, prompt, decode):
    model = tiny("llama", vocab_size=128, initializer_range=0.05).ours
    common = dict(max_new_tokens=4, ignore_eos=True, selector="window", budget=4)

    def tokens(seed: int, **settings) -> np.ndarray:
        sampling = SamplingConfig(temperature=0.5, top_k=3, seed=seed)
        runs = decode(
            model, [prompt(12)] * 1500, slots=1500, sampling=sampling, **common, **settings
        )
        return np.array(runs.tokens)

    plain = tokens(1, gamma=0)
    trees = tokens(2, gamma=2, tree="sequoia", tree_shape=SHAPE)
    for column in (1, 2, 3):
        values = np.union1d(plain[:, column], trees[:, column])
        table = np.array(
            [[(rows[:, column] == v).sum() for v in values] for rows in (plain, trees)]
        )
        table = table[:, table.sum(axis=0) >= 10]
        assert chi2_contingency(table).pvalue > 1e-3
