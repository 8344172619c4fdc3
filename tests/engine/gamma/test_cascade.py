"""Inside a cascade: its drafts are the middle's, however they came about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from magicdec.engine.accept.chain import make_rule
from magicdec.engine.accept.sampling import distribution
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.make import make_drafter
from magicdec.engine.errors import ConfigError
from magicdec.engine.memory.plan import DraftRoom
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.selection import SELECTORS
from magicdec.engine.step import speculative_step
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")
INNER = ["lookup", "layers:1", "other"]
GREEDY = SamplingConfig()
SAMPLED = SamplingConfig(temperature=1.3, top_p=0.95, seed=5)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


class Bench:
    """Prefilled rows that each of several drafters can continue.

    small: the model that draft `other` names; without it the model's first layer, which then has a
    cache of its own.
    """

    def __init__(
        self, model, tokenizer, prompts, sampling=GREEDY, gamma=6, small=None, **settings
    ) -> None:
        self.small = small or model.first(1)
        self.model, self.gamma, self.sampling = model, gamma, sampling
        self.settings = dict(
            max_new_tokens=60, gamma=gamma, ignore_eos=True, draft_weights="same", budget=10,
            sampling=sampling, **settings,
        )  # fmt: skip
        self.config = DecodeConfig(**self.settings)
        self.cache = KVCache(model, get_backend("sdpa", CPU), rows=len(prompts), capacity=200)
        self.rule = make_rule(sampling, slots=len(prompts), positions=80, device=CPU)
        self.rows = []
        for slot, tokens in enumerate(prompts):
            list(prefill(model, self.cache, slot, tokens, chunk=64))
            row = Row(Request("doc", tokens, slot), slot, self.config, tokenizer, ())
            row.take([int(self.cache.prompts[slot].logits.argmax())])
            self.rule.admit(slot, slot)
            self.rows.append(row)

    def drafter(self, draft: str):
        config = DecodeConfig(**self.settings, draft=draft)
        longest = max(len(row.request.tokens) for row in self.rows)
        made = make_drafter(
            self.cache, config, self.small, context=longest, chunk=16, clock=Clock()
        )
        for row in self.rows:
            made.admit(row.slot)
        return made

    @property
    def pending(self) -> torch.Tensor:
        return torch.tensor([row.tokens[-1:] for row in self.rows])

    def propose(self, drafter, most):
        self.rule.begin([r.slot for r in self.rows], [len(r.tokens) for r in self.rows], most)
        return drafter.propose(self.rows, self.pending, most, self.rule)

    def step(self, drafter, most):
        outcomes = speculative_step(
            self.model, self.cache, drafter, self.rule, self.rows, most, Clock()
        )
        for row, outcome in zip(self.rows, outcomes, strict=True):
            row.take(outcome.tokens)
        return outcomes


def few(tiny):
    """A model of few words: drafts are often right, and often wrong."""
    return tiny(vocab_size=8, seed=2).ours


def loops(prompt):
    """Texts of few words, in which a lookup finds something sooner or later."""
    return [tuple(3 + token % 5 for token in prompt(n)) for n in (22, 13, 30, 1)]


@pytest.mark.parametrize("selector", ["snapkv", "streaming", "window"])
@pytest.mark.parametrize("inner", INNER)
def test_greedy_drafts_are_those_of_the_self_draft_alone(tiny, prompt, tokenizer, inner, selector):
    """Over several steps, so that a slip in the view's rollback or commit would show."""
    bench = Bench(few(tiny), tokenizer, loops(prompt), selector=selector)
    cascade, alone = bench.drafter(f"{inner}+self"), bench.drafter("self")
    for most in ([6, 6, 6, 6], [3, 6, 1, 5], [6, 0, 2, 4], [1, 1, 1, 1], [6, 5, 4, 3]):
        want, got = bench.propose(alone, most), bench.propose(cascade, most)
        assert got.lengths == most and got.probs is None
        for row, length in enumerate(most):
            assert got.tokens[row, :length].tolist() == want.tokens[row, :length].tolist()
        before = list(bench.cache.lengths)
        bench.step(cascade, most)
        grown = [a - b for a, b in zip(bench.cache.lengths, before, strict=True)]
        alone.commit(range(4), grown)
    counts, each = cascade.counts, 2 * (24 + 15 + 12 + 4 + 18)  # drafted twice in every round
    assert 0 < counts.inner_accepted < counts.inner_drafted
    assert counts.passes + counts.inner_accepted == each, "a pass gives its own token, too"


@pytest.mark.parametrize("selector", ["snapkv", "streaming"])
@pytest.mark.parametrize("inner", INNER)
def test_after_rejections_the_view_holds_what_the_self_drafts_would(
    tiny, prompt, tokenizer, inner, selector
):
    bench = Bench(
        tiny(vocab_size=8, seed=2).ours, tokenizer, loops(prompt), SAMPLED, selector=selector
    )
    cascade, alone = bench.drafter(f"{inner}+self"), bench.drafter("self")
    rejected = 0
    for _ in range(5):
        before = list(bench.cache.lengths)
        outcomes = bench.step(cascade, [6, 6, 6, 6])
        rejected += sum(outcome.accepted < outcome.drafted for outcome in outcomes)
        alone.commit(range(4), [a - b for a, b in zip(bench.cache.lengths, before, strict=True)])
    assert rejected, "nothing was ever rejected"
    for slot in range(4):
        entries = cascade.entries(slot)
        assert entries == alone.entries(slot)
        for ours, theirs in zip(
            (cascade._view.store.k, cascade._view.store.v),
            (alone._view.store.k, alone._view.store.v), strict=True,
        ):  # fmt: skip
            torch.testing.assert_close(ours[:, slot, :, :entries], theirs[:, slot, :, :entries])


@pytest.mark.parametrize("inner", INNER)
def test_q_is_what_the_self_draft_says_after_the_tokens_before(tiny, prompt, tokenizer, inner):
    bench = Bench(
        tiny(vocab_size=8, seed=2).ours, tokenizer, loops(prompt), SAMPLED, selector="streaming"
    )
    cascade, alone = bench.drafter(f"{inner}+self"), bench.drafter("self")
    for most in ([6, 6, 6, 6], [2, 6, 3, 5]):
        proposal = bench.propose(cascade, most)
        fed = torch.cat((bench.pending, proposal.tokens[:, :-1]), dim=1)
        access = alone._view.access(range(4), [0] * 4, fed.shape[1])
        q = distribution(bench.model.forward(fed, access), SAMPLED)
        for row, length in enumerate(most):
            torch.testing.assert_close(proposal.probs[row, :length], q[row, :length], **CLOSE)
            assert not proposal.probs[row, length:].any()


@pytest.mark.parametrize("inner", INNER)
def test_drafted_tokens_are_distributed_as_the_self_drafts(tiny, tokenizer, inner):
    """Given the tokens before it, each has the distribution q that is recorded for it; so counts
    differ from the sum of q over rows by less than those of independent rows would."""
    rows, rounds, vocabulary = 100, 20, 8
    prompt = (3, 4, 5, 3, 4, 6, 3, 4)
    model = tiny(vocab_size=vocabulary, seed=2).ours
    bench = Bench(
        model, tokenizer, [prompt] * rows, SamplingConfig(temperature=1.5, seed=2), gamma=5,
        selector="window",
    )  # fmt: skip
    cascade = bench.drafter(f"{inner}+self")
    tokens, probs = [], []
    for turn in range(rounds):  # other rows in the same slots
        for row in bench.rows:
            row.request = replace(row.request, row=turn * rows + row.slot)
        proposal = bench.propose(cascade, [5] * rows)
        tokens.append(proposal.tokens)
        probs.append(proposal.probs.double())
    said, q = torch.cat(tokens).numpy(), torch.cat(probs).numpy()
    assert 0 < cascade.counts.inner_accepted < cascade.counts.inner_drafted
    for position in range(5):
        counts = np.bincount(said[:, position], minlength=vocabulary)
        expected = q[:, position].sum(0)
        assert chisquare(counts, expected / expected.sum() * len(said)).pvalue > 1e-3
    # The first tokens' q is one and the same: those counts are independent.
    assert q[:, 0].std(0).max() < 1e-5


def test_inside_a_draft_other_random_numbers_decide_than_outside(tiny, prompt, tokenizer):
    """A draft of the same text is the same; a longer text has new numbers."""
    bench = Bench(tiny().ours, tokenizer, [prompt(30)] * 2, SAMPLED, selector="window")
    cascade = bench.drafter("layers:1+self")
    first, again = (bench.propose(cascade, [6, 6]).tokens for _ in range(2))
    assert first.tolist() == again.tolist()
    assert first[0].tolist() != first[1].tolist(), "rows have numbers of their own"


@pytest.mark.parametrize("inner", INNER)
def test_a_middle_that_sees_everything_is_always_accepted(tiny, prompt, decode, inner):
    """The control. Its drafts are the target's own text, so none may be rejected."""
    for sampling in (GREEDY, SamplingConfig(temperature=0.8, seed=4)):
        got = decode(
            tiny().ours, [prompt(45), prompt(20), prompt(1)], gamma=4, draft=f"{inner}+self",
            draft_kv="full", max_new_tokens=41, ignore_eos=True, sampling=sampling,
            draft_decoder=tiny().ours.first(1),
        )  # fmt: skip
        assert all(row.accepted == row.drafted for step in got.steps for row in step.rows)
        assert len(got.steps) == 8
        inner_drafts = got.events[-1].inner
        assert 0 <= inner_drafts.accepted <= inner_drafts.drafted


def test_only_a_cascade_reports_inner_drafts(tiny, prompt, decode):
    assert decode(tiny().ours, [prompt(9)], gamma=2).events[-1].inner is None
    assert decode(tiny().ours, [prompt(9)], gamma=0, draft="lookup+self").events[-1].inner is None


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_after_every_step_the_inner_models_cache_is_that_of_the_accepted_text(
    tiny, prompt, tokenizer, sampling
):
    """Compared with one that only ever saw accepted tokens, in two layers: the second one's keys
    tell what the first attended to."""
    small = tiny("qwen2", vocab_size=8, seed=5).ours
    bench = Bench(few(tiny), tokenizer, loops(prompt), sampling, small=small, selector="snapkv")
    cascade, alone = bench.drafter("other+self"), bench.drafter("other")
    inner, drafted = cascade._inner, []
    for most in ([6, 6, 6, 6], [3, 6, 1, 5], [1, 1, 1, 1], [6, 0, 2, 4], [2, 2, 2, 2]):
        before = list(bench.cache.lengths)
        drafted += bench.step(cascade, most)
        grown = [a - b for a, b in zip(bench.cache.lengths, before, strict=True)]
        alone.catch_up(bench.rows, grown)
        inner.catch_up(bench.rows)
        ours, theirs = inner.drafter._view, alone._view
        for slot in range(4):
            entries = ours.entries(slot)
            assert entries == theirs.entries(slot)
            for mine, other in ((ours.store.k, theirs.store.k), (ours.store.v, theirs.store.v)):
                torch.testing.assert_close(
                    mine[:, slot, :, :entries], other[:, slot, :, :entries], **CLOSE
                )
    outcomes = {(one.accepted > 0, one.accepted < one.drafted) for one in drafted if one.drafted}
    assert len(outcomes) > 2, "drafts were accepted as a whole, in part and not at all"
    assert 0 < cascade.counts.inner_accepted < cascade.counts.inner_drafted


@pytest.mark.parametrize("kv", [{"draft_kv": "full"}, {"selector": "streaming"}])
def test_an_inner_model_keeps_to_its_trained_window(tiny, prompt, decode, kv):
    """Of a long prompt it sees the end; no position is beyond what it was trained for."""
    small = tiny("qwen2", seed=5, max_position_embeddings=96).ours
    prompts, common = [prompt(90), prompt(12)], dict(max_new_tokens=60, ignore_eos=True)
    room = DraftRoom.of(
        small.spec, SELECTORS.create("full"), DecodeConfig(draft="other+self", gamma=4, **common),
        rows=2, context=90,
    )  # fmt: skip
    assert room.prompt + 60 + room.scratch == 96 + 1
    got = decode(
        tiny().ours, prompts, gamma=4, draft="other+self", budget=12, draft_decoder=small, **kv,
        **common,
    )  # fmt: skip
    assert got.tokens == decode(tiny().ours, prompts, gamma=0, **common).tokens
    with pytest.raises(ConfigError, match="draft other: its trained window of 96 tokens has no"):
        decode(
            tiny().ours, prompts, gamma=4, draft="other+self", draft_decoder=small,
            max_new_tokens=90,
        )  # fmt: skip
