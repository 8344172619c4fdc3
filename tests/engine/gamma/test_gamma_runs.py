"""Whatever chooses γ does not show in the text, and plain steps leave the drafter alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from magicdec.engine.backlog import Backlog
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.base import Confidence, Drafter
from magicdec.engine.drafters.make import make_drafter
from magicdec.engine.events import GammaChosen
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import Adaptive, Entry, Schedule
from magicdec.engine.report import Recorder
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.kernels.backends import get_backend

NEW = 24
RAGGED = (50, 1, 33, 2, 49)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Script:
    """γ by the run's steps, over and over."""

    gammas: tuple[int, ...]
    name: str = "script"
    source: str = ""
    stop: float | None = None

    def gamma(self, now) -> int:
        return min(now.most, self.gammas[now.history.steps % len(self.gammas)])


POLICIES = {
    "adaptive": Adaptive(0.5),
    "never sure": Adaptive(0.999),
    "auto": Auto(),
    "schedule": Schedule((Entry(1, 1, 3), Entry(2, 1, 0), Entry(3, 1, 2), Entry(3, 45, 4))),
    "on and off": Script((0, 0, 0, 4, 1, 0, 3)),
    "late": Script((0,) * 9 + (4,)),
    "script, adaptive": Script((0, 4, 0, 0, 4), stop=0.6),
}
DRAFTS = {
    "snapkv": dict(selector="snapkv"),
    "streaming": dict(selector="streaming"),
    "reuse": dict(selector="reuse"),
    "reuse, seldom": dict(selector="reuse", selector_options={"refresh": "3"}),
    "layers": dict(draft="layers:1", selector="snapkv"),
    "model, full": dict(draft="other", draft_kv="full"),
    "model, streaming": dict(draft="other", selector="streaming"),
    "lookup": dict(draft="lookup"),
    "cascade": dict(draft="lookup+self", selector="snapkv"),
    "cascade of layers": dict(draft="layers:1+self", selector="window"),
    "cascade of models": dict(draft="other+self", selector="streaming"),
}


def other(tiny, **changes):
    """A model of the same vocabulary that knows nothing of the target."""
    return tiny("qwen2", seed=5, num_hidden_layers=1, num_key_value_heads=1, **changes).ours


PAIRS = [
    pytest.param(policy, draft, id=f"{name}, {who}")
    for name, policy in POLICIES.items()
    for who, draft in DRAFTS.items()
    if who != "lookup" or policy.stop is None  # refused: a lookup has no probabilities
]


@pytest.mark.parametrize("policy,draft", PAIRS)
def test_greedy_text_is_plain_decodings(tiny, prompt, decode, policy, draft):
    prompts = [prompt(n) for n in RAGGED]
    common = dict(max_new_tokens=NEW, ignore_eos=True, slots=3)
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(
        tiny().ours, prompts, gamma=5, gamma_policy=policy, budget=12,
        draft_decoder=other(tiny), **draft, **common,
    )  # fmt: skip
    assert got.tokens == plain.tokens
    for step in got.steps:
        assert all(0 <= r.accepted <= r.drafted <= step.gamma <= 5 for r in step.rows)


@pytest.mark.parametrize("kv", [{"draft_kv": "full"}, {"selector": "snapkv", "budget": 200}])
@pytest.mark.parametrize("draft", ["self", "other"])
def test_after_plain_steps_a_draft_that_sees_everything_is_still_always_right(
    tiny, prompt, decode, draft, kv
):
    """Any token that the drafter missed, or saw twice, would show as a rejection."""
    got = decode(
        tiny().ours, [prompt(45), prompt(20), prompt(1)], gamma=4, draft=draft,
        gamma_policy=Script((0,) * 8 + (4, 4, 0, 2)), draft_decoder=tiny().ours,
        max_new_tokens=60, ignore_eos=True, **kv,
    )  # fmt: skip
    assert all(row.accepted == row.drafted for step in got.steps for row in step.rows)
    assert sum(row.drafted for step in got.steps for row in step.rows) > 60


@pytest.mark.parametrize("draft_kv", ["full", "selected"])
def test_a_model_under_itself_is_always_right(tiny, prompt, decode, draft_kv):
    """A cascade in which all three are one model that sees everything: a token that the inner one
    missed, saw twice or still held of another draft would show as a rejection. Rows come late."""
    got = decode(
        tiny().ours, [prompt(45), prompt(20), prompt(1), prompt(33)], slots=2, gamma=7,
        draft="other+self", draft_kv=draft_kv, selector="snapkv", budget=200,
        gamma_policy=Script((0, 7, 1, 2, 0, 0, 3, 5)), draft_decoder=tiny().ours,
        max_new_tokens=60, ignore_eos=True,
    )  # fmt: skip
    assert all(row.accepted == row.drafted for step in got.steps for row in step.rows)
    inner = got.events[-1].inner
    assert inner.accepted == inner.drafted > 60


class Untouched(Drafter):
    """Fails when anybody asks it for anything after the run's load."""

    def _fail(self, *_: object) -> None:
        raise AssertionError("plain decoding needs no drafter")

    admit = propose = commit = entries = catch_up = _fail


def test_where_gamma_is_zero_throughout_the_drafter_is_never_asked(
    tiny, prompt, decode, monkeypatch
):
    monkeypatch.setattr("magicdec.engine.engine.make_drafter", lambda *_, **__: Untouched())
    prompts = [prompt(n) for n in RAGGED]
    common = dict(max_new_tokens=NEW, ignore_eos=True, slots=3)
    got = decode(tiny().ours, prompts, gamma=4, gamma_policy=Script((0,)), **common)
    monkeypatch.undo()
    assert got.tokens == decode(tiny().ours, prompts, gamma=0, **common).tokens
    assert got.events[-1].draft_entries_read == 0 and got.events[-1].phases.select == 0
    assert [e.gamma for e in got.events if isinstance(e, GammaChosen)] == [0]


@pytest.mark.parametrize("selector", ["snapkv", "streaming", "window"])
@pytest.mark.parametrize("budget", [10, 100])
def test_a_view_that_was_left_behind_ends_as_one_that_was_not(
    tiny, prompt, tokenizer, selector, budget
):
    model, stores = tiny().ours, []
    for late in (False, True):
        cache = KVCache(model, get_backend("sdpa", CPU), rows=1, capacity=120)
        tokens = prompt(40)
        config = DecodeConfig(
            max_new_tokens=60, gamma=4, selector=selector, budget=budget, draft_weights="same"
        )
        drafter = make_drafter(cache, config, None, context=40, chunk=16, clock=Clock())
        list(prefill(model, cache, 0, tokens, chunk=16))
        row = Row(Request("doc", tokens, 0), 0, config, tokenizer, ())
        backlog = Backlog(drafter, Clock())
        backlog.admit(0)
        assert backlog.unprepared([row]) == 1
        for token in prompt(25, seed=3):
            if not late:
                backlog.settle([row])
            model.forward(torch.tensor([[token]]), cache.following([0], 1))
            cache.advance([0], [1])
            backlog.skip([0], [1])
        backlog.settle([row])
        assert backlog.unprepared([row]) == 0
        entries = drafter.entries(0)
        stores.append((entries, drafter._view.store.k[:, 0, :, :entries].clone()))
    assert stores[0][0] == stores[1][0]
    torch.testing.assert_close(stores[0][1], stores[1][1], rtol=0, atol=0)


def test_gamma_events_tell_when_and_for_what(tiny, prompt, decode):
    policy = Schedule((Entry(1, 1, 4), Entry(2, 1, 0)))
    got = decode(
        tiny().ours, [prompt(40), prompt(20)], gamma=4, gamma_policy=policy, ignore_eos=True,
        max_new_tokens=NEW, slots=2, draft_kv="full",
    )  # fmt: skip
    chosen = [e for e in got.events if isinstance(e, GammaChosen)]
    assert chosen == [GammaChosen(1, 2, 30, 0)], "both rows end together"
    recorder = Recorder()
    for event in got.events:
        recorder.add(event)
    assert recorder.tally().mean_gamma == 0 and recorder.tally().gamma_chosen == tuple(chosen)
    three = decode(
        tiny().ours, [prompt(40), prompt(20), prompt(9)], gamma=4, gamma_policy=policy,
        ignore_eos=True, max_new_tokens=NEW, slots=2, draft_kv="full",
    )  # fmt: skip
    chosen = [(e.rows, e.gamma) for e in three.events if isinstance(e, GammaChosen)]
    assert chosen == [(2, 0), (1, 4)], "the third row is alone in the end"


def test_a_draft_ends_after_the_token_that_made_it_unlikely():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05], [0.9, 0.05, 0.05]]))
    token = torch.tensor([0, 0, 0])
    confidence = Confidence(0.4, [8, 8, 1])
    assert not confidence.ends(logits, token, None)  # .5, .9, and a row that has no more room
    assert not confidence.ends(logits, token, None)  # .25: row 0 ends, .81
    assert confidence.lengths == [2, 8, 1]
    while not confidence.ends(logits, token, None):
        pass
    assert confidence.lengths == [2, 8, 1], "row 1 stays above .4 for its eight tokens"


def test_a_draft_without_a_threshold_has_its_full_length():
    confidence = Confidence(None, [3, 1])
    assert not confidence.ends(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64), None)
    assert confidence.lengths == [3, 1]


@pytest.mark.parametrize("draft", ["snapkv", "model, full", "cascade", "cascade of models"])
def test_sampled_text_of_an_adaptive_row_does_not_depend_on_its_mates(tiny, prompt, decode, draft):
    prompts = [prompt(n) for n in RAGGED]
    settings = dict(
        gamma=5, gamma_policy=Adaptive(0.2), budget=16, draft_decoder=other(tiny),
        max_new_tokens=NEW, ignore_eos=True, sampling=SamplingConfig(temperature=0.7, seed=3),
        **DRAFTS[draft],
    )  # fmt: skip
    together = decode(tiny().ours, prompts, **settings)
    lengths = {row.drafted for step in together.steps for row in step.rows}
    assert len(lengths) > 2, "drafts did end at different lengths"
    for row in (0, 1, 3):
        alone = decode(tiny().ours, [prompts[row]], rows=[row], **settings)
        assert alone.tokens == [together.tokens[row]]


# --- distributions -------------------------------------------------------------------------------

VOCABULARY, ROWS = 8, 1000
PROMPT = (3, 4, 5, 3, 4, 6, 3, 4)


def marginals(model, sampling: SamplingConfig, count: int) -> list[np.ndarray]:
    """The exact distribution of each of the first tokens, over all texts before it."""
    from magicdec.engine.accept.sampling import distribution

    texts, weights, found = torch.tensor([PROMPT]), torch.ones(1, dtype=torch.float64), []
    for _ in range(count):
        cache = KVCache(model, get_backend("sdpa", CPU), rows=len(texts), capacity=20)
        logits = model.forward(texts, cache.following(range(len(texts)), texts.shape[1]))
        p = distribution(logits[:, -1], sampling).double() * weights[:, None]
        found.append(p.sum(0).numpy())
        weights = p.reshape(-1)
        following = torch.arange(VOCABULARY).repeat(len(texts))[:, None]
        texts = torch.cat((texts.repeat_interleave(VOCABULARY, 0), following), dim=1)
    return found


EXACT = {
    "adaptive": dict(gamma_policy=Adaptive(0.3)),
    "adaptive cascade": dict(gamma_policy=Adaptive(0.3), draft="layers:1+self"),
    "lookup+self": dict(draft="lookup+self"),
    "layers:1+self": dict(draft="layers:1+self"),
    "other+self": dict(draft="other+self"),
    "auto": dict(gamma_policy=Auto()),
    "on and off": dict(gamma_policy=Script((0, 3, 1, 0))),
}


@pytest.mark.parametrize("name", EXACT)
def test_sampled_tokens_are_distributed_as_the_targets(tiny, decode, name):
    model = tiny(vocab_size=VOCABULARY, seed=2).ours
    sampling = SamplingConfig(temperature=1.5, top_p=0.95, seed=11)
    got = decode(
        model, [PROMPT] * ROWS, slots=100, gamma=3, budget=4, selector="window",
        max_new_tokens=4, ignore_eos=True, sampling=sampling,
        draft_decoder=other(tiny, vocab_size=VOCABULARY), **EXACT[name],
    )  # fmt: skip
    accepted = [(r.accepted, r.drafted) for step in got.steps for r in step.rows]
    assert any(a for a, _ in accepted) and any(a < d for a, d in accepted)
    said = np.array(got.tokens)
    for position, p in enumerate(marginals(model, sampling, 4)):
        counts = np.bincount(said[:, position], minlength=VOCABULARY)
        kept = p > 0
        assert counts[~kept].sum() == 0
        assert chisquare(counts[kept], ROWS * p[kept] / p.sum()).pvalue > 1e-3, position
