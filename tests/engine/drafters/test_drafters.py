"""Who drafts does not show in the text: lookups, early exits and other models are lossless."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.accept.chain import Greedy
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.drafters.make import make_drafter
from magicdec.engine.errors import ConfigError
from magicdec.engine.memory.plan import DraftRoom, draft_need
from magicdec.engine.memory.run_shape import RunShape
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.selection import SELECTORS
from magicdec.engine.step import speculative_step
from magicdec.engine.views.dynamic import DynamicView
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
NEW = 24
RAGGED = (50, 1, 33, 2, 49)
SPARSE = [name for name in SELECTORS.names() if name not in ("full", "reuse")]
#: draft, and how it keeps its KV
DRAFTS = [
    ("lookup", {}),
    ("layers:1", {"selector": "snapkv"}),
    ("layers:1", {"draft_kv": "full"}),
    ("other", {"draft_kv": "full"}),
    *(("other", {"selector": name}) for name in SPARSE),
    ("lookup+self", {"selector": "snapkv"}),
    ("lookup+self", {"selector": "streaming"}),
    ("layers:1+self", {"selector": "window"}),
    ("layers:1+self", {"selector": "snapkv"}),
    ("other+self", {"selector": "streaming"}),
]
NAMES = [f"{draft} {' '.join(kv.values())}".strip() for draft, kv in DRAFTS]
drafts = pytest.mark.parametrize("draft,kv", DRAFTS, ids=NAMES)


def other(tiny, **changes):
    """A model of the same vocabulary that knows nothing of the target."""
    return tiny("qwen2", seed=5, num_hidden_layers=1, num_key_value_heads=1, **changes).ours


@drafts
@pytest.mark.parametrize("gamma", [1, 4])
@pytest.mark.parametrize("budget", [12, 200])
def test_greedy_text_is_plain_decodings(tiny, prompt, decode, draft, kv, gamma, budget):
    prompts = [prompt(n) for n in RAGGED]
    common = dict(max_new_tokens=NEW, ignore_eos=True)
    plain = decode(tiny().ours, prompts, gamma=0, **common)
    got = decode(
        tiny().ours, prompts, gamma=gamma, budget=budget, draft=draft, draft_decoder=other(tiny),
        slots=3, **kv, **common,
    )  # fmt: skip
    assert got.tokens == plain.tokens
    for step in got.steps:
        assert all(0 <= r.accepted <= r.drafted <= step.gamma <= gamma for r in step.rows)


@drafts
def test_sampled_text_depends_on_nothing_but_seed_and_row(tiny, prompt, decode, draft, kv):
    prompts = [prompt(n) for n in RAGGED]
    settings = dict(
        gamma=3, budget=16, draft=draft, draft_decoder=other(tiny), max_new_tokens=NEW,
        ignore_eos=True, sampling=SamplingConfig(temperature=1.0, top_p=0.9, seed=3), **kv,
    )  # fmt: skip
    together = decode(tiny().ours, prompts, **settings)
    for row in (0, 1, 3):
        alone = decode(tiny().ours, [prompts[row]], rows=[row], **settings)
        assert alone.tokens == [together.tokens[row]]


@pytest.mark.parametrize("kv", [{"draft_kv": "full"}, *({"selector": n} for n in SPARSE)])
def test_a_draft_model_that_is_the_target_accepts_everything_it_sees_whole(
    tiny, prompt, decode, kv
):
    """Standard speculation with the target as its own draft: any slip of the draft's cache, after
    whole or partly accepted drafts, would show as a rejection."""
    got = decode(
        tiny().ours, [prompt(45), prompt(20), prompt(1)], gamma=4, draft="other", budget=200,
        draft_decoder=tiny().ours, max_new_tokens=41, ignore_eos=True, **kv,
    )  # fmt: skip
    assert all(row.accepted == row.drafted for step in got.steps for row in step.rows)
    assert len(got.steps) == 8


class Stepper:
    """Prefilled rows and a drafter made from settings, to be stepped by hand."""

    def __init__(self, model, tokenizer, prompts, decoder=None, **settings) -> None:
        self.model = model
        self.cache = KVCache(model, get_backend("sdpa", CPU), rows=len(prompts), capacity=200)
        config = DecodeConfig(
            max_new_tokens=60, gamma=4, ignore_eos=True, draft_weights="same", **settings
        )
        self.drafter = make_drafter(
            self.cache, config, decoder, context=max(map(len, prompts)), chunk=16, clock=Clock()
        )
        self.rows = []
        for slot, tokens in enumerate(prompts):
            list(prefill(model, self.cache, slot, tokens, chunk=16))
            row = Row(Request("doc", tokens, slot), slot, config, tokenizer, ())
            row.take([int(self.cache.prompts[slot].logits.argmax())])
            self.drafter.admit(slot)
            self.rows.append(row)

    def steps(self, count: int) -> list[int]:
        accepted = []
        for _ in range(count):
            outcomes = speculative_step(
                self.model, self.cache, self.drafter, Greedy(), self.rows,
                [4] * len(self.rows), Clock(),
            )  # fmt: skip
            for row, outcome in zip(self.rows, outcomes, strict=True):
                row.take(outcome.tokens)
                accepted.append(outcome.accepted)
        return accepted

    def text(self, slot: int) -> tuple[int, ...]:
        """All tokens that the target's cache holds."""
        row = self.rows[slot]
        return (*row.request.tokens, *row.tokens[:-1])


def fresh(model, text):
    cache = KVCache(model, get_backend("sdpa", CPU), rows=1, capacity=200)
    list(prefill(model, cache, 0, text, chunk=200))
    return cache


@drafts
def test_after_rejections_the_targets_cache_equals_a_fresh_prefill(
    tiny, prompt, tokenizer, draft, kv
):
    run = Stepper(
        tiny().ours, tokenizer, [prompt(40), prompt(23)], other(tiny), draft=draft, budget=10, **kv
    )
    assert min(run.steps(6)) < 4, "nothing was ever rejected"
    for slot in range(2):
        text = run.text(slot)
        length = run.cache.lengths[slot]
        assert length == len(text)
        theirs = fresh(run.model, text)
        for ours, want in ((run.cache.k, theirs.k), (run.cache.v, theirs.v)):
            torch.testing.assert_close(ours[:, slot, :, :length], want[:, 0, :, :length], **CLOSE)


@pytest.mark.parametrize("same", [True, False], ids=["accepts all", "rejects most"])
def test_a_draft_models_full_cache_is_one_token_behind(tiny, prompt, tokenizer, same):
    model = tiny().ours
    draft = model if same else other(tiny)
    run = Stepper(model, tokenizer, [prompt(40), prompt(1)], draft, draft="other", draft_kv="full")
    accepted = run.steps(5)
    assert set(accepted) == {4} if same else min(accepted) < 4
    own = run.drafter._cache
    for slot in range(2):
        text = run.text(slot)[:-1]
        assert own.lengths[slot] == len(text) == run.drafter.entries(slot)
        want = fresh(draft, text)
        for ours, theirs in ((own.k, want.k), (own.v, want.v)):
            torch.testing.assert_close(
                ours[:, slot, :, : len(text)], theirs[:, 0, :, : len(text)], **CLOSE
            )


@pytest.mark.parametrize("name", ["other", "other+self"])
@pytest.mark.parametrize("selector,sinks", [("streaming", 4), ("window", 0), ("snapkv", None)])
@pytest.mark.parametrize("budget", [6, 11, 45, 100])
def test_a_draft_models_bounded_cache_holds_the_accepted_tokens(
    tiny, prompt, tokenizer, selector, sinks, budget, name
):
    """Keys of the first layer depend on token and position alone: they tell what is there."""
    draft = other(tiny)
    run = Stepper(
        tiny().ours, tokenizer, [prompt(40), prompt(23)], draft, draft=name,
        selector=selector, budget=budget,
    )  # fmt: skip
    run.steps(8)
    own = run.drafter
    if name != "other":
        own._inner.catch_up(run.rows)
        own = own._inner.drafter
    for slot, length in ((0, 40), (1, 23)):
        text = run.text(slot)[:-1]
        entries = own.entries(slot)
        held = own._view.store.k[0, slot, 0, :entries]
        keys = fresh(draft, text).k[0, 0, 0, : len(text)]
        distance = torch.cdist(held, keys, compute_mode="donot_use_mm_for_euclid_dist")
        assert distance.min(dim=1).values.max() < 1e-4
        positions = sorted(distance.argmin(dim=1).tolist())
        prompt_part = length - 1
        if sinks is None:
            said = list(range(prompt_part, len(text)))
            assert positions[-len(said) :] == said
            assert len(positions) == min(budget, prompt_part) + len(said)
        elif len(text) <= budget:
            assert positions == list(range(len(text)))
        else:
            assert positions == [*range(sinks), *range(len(text) - budget + sinks, len(text))]


def test_a_draft_sees_the_end_of_a_prompt_beyond_its_trained_window(tiny, prompt, tokenizer):
    draft = other(tiny, max_position_embeddings=96)
    prompts = [prompt(90), prompt(12)]
    run = Stepper(tiny().ours, tokenizer, prompts, draft, draft="other", draft_kv="full")
    room = 96 - 60 - 4
    assert run.drafter._cache.lengths == [room - 1, 11]
    want = fresh(draft, prompts[0][-room:-1])
    torch.testing.assert_close(
        run.drafter._cache.k[:, 0, :, : room - 1], want.k[:, 0, :, : room - 1], **CLOSE
    )
    while run.rows[0].remaining > 5:
        run.steps(1)
    assert max(run.drafter._cache.lengths) + 5 <= 96
    config = DecodeConfig(max_new_tokens=93, draft="other", gamma=3)
    with pytest.raises(ConfigError, match="window of 96 tokens has no room beside 93 new ones"):
        DraftRoom.of(draft.spec, SELECTORS.create("window"), config, rows=1, context=90)


def test_a_padded_vocabulary_is_no_other_vocabulary(tiny, prompt, decode):
    """A wider head: what the target lacks is never drafted."""
    prompts = [prompt(20), prompt(9)]
    draft = other(tiny, vocab_size=160)
    for sampling in (SamplingConfig(), SamplingConfig(temperature=1.0)):
        common = dict(max_new_tokens=30, ignore_eos=True, sampling=sampling)
        got = decode(
            tiny().ours, prompts, gamma=3, draft="other", draft_kv="full", draft_decoder=draft,
            **common,
        )  # fmt: skip
        if sampling.greedy:
            assert got.tokens == decode(tiny().ours, prompts, gamma=0, **common).tokens
        assert all(0 <= token < 128 for row in got.tokens for token in row)


def test_an_early_exit_is_the_model_cut_short(tiny, prompt):
    """Its logits are those of a model that has no more layers, and it shares the target's cache."""
    from dataclasses import replace

    from magicdec.engine.model.decoder import Decoder

    pair = tiny(num_hidden_layers=3)
    spec = replace(pair.ours.spec, layers=2, windows=pair.ours.spec.windows[:2])
    cut = Decoder(spec, pair.theirs.state_dict(), device=CPU, dtype=torch.float32)
    early = pair.ours.first(2)
    cache = fresh(pair.ours, prompt(30))
    token = torch.tensor([[7]])
    want = cut.forward(token, fresh(cut, prompt(30)).following([0], 1))
    torch.testing.assert_close(early.forward(token, cache.following([0], 1)), want, **CLOSE)


def test_an_int8_early_exit_quantises_its_own_layers_only(tiny):
    model = tiny(num_hidden_layers=4, seed=3).ours
    whole = model.quantized.streamed_bytes
    assert model.first(1).quantized.streamed_bytes < whole
    assert model.quantized.streamed_bytes == whole


@pytest.mark.parametrize(
    "settings,message",
    [
        (dict(draft="layers:0"), "draft 'layers:0' runs no layer"),
        (dict(draft="layers:many"), "give a number of layers, such as layers:6"),
        (dict(draft="layers:-1"), "runs no layer"),
        (dict(draft=""), "draft is empty"),
        (dict(draft="layers:0+self"), "draft 'layers:0\\+self' runs no layer"),
        (dict(draft="self+self"), "give lookup\\+self, layers:6\\+self or MODEL\\+self"),
        (dict(draft="lookup+"), "'lookup\\+' is no way to draft; give self, .*MODEL\\+self"),
        (dict(draft="self+lookup"), "lookup\\+self, layers:N\\+self or MODEL\\+self"),
        (dict(draft="lookup+lookup"), "is no way to draft"),
        (dict(draft="lookup+layers:2+self"), "is no way to draft"),
        (dict(draft="layers"), "give self, lookup, layers:N, a model, or a cascade"),
        (dict(draft="layers:abc"), "such as layers:6, or layers:6\\+self for a cascade"),
        (dict(draft="layers:2+lookup"), "is no way to draft"),
        (dict(draft="+self"), "names nobody who drafts for the self-draft"),
        (dict(draft="other+self+self"), "'other\\+self' ends in \\+self"),
        (dict(draft="./other+self/"), "a folder that is called so needs another name"),
        (dict(draft="lookup", draft_kv="full"), "no effect on lookup"),
        (dict(draft_kv="half"), "draft-kv must be selected or full, got 'half'"),
    ],
)
def test_drafts_that_cannot_be(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        DecodeConfig(**settings)
    assert "\n" not in str(error.value)


def test_a_folder_may_be_called_like_a_way_to_draft():
    for name in ("./lookup+other", "./layers", "org/self+lookup"):
        assert DecodeConfig(draft=name).who.model == name


def test_an_early_exit_needs_layers_to_skip(tiny, prompt, decode):
    with pytest.raises(ConfigError, match="layers:2 needs a model of more layers, this one has 2"):
        decode(tiny().ours, [prompt(9)], draft="layers:2")


def run_shape(spec, config, draft):
    return RunShape(spec, config, 2, 40, 32, torch.float32, torch.float32, CPU, draft)


@drafts
def test_the_forecast_counts_what_a_draft_allocates(tiny, prompt, tokenizer, draft, kv):
    model, second = tiny().ours, other(tiny)
    run = Stepper(model, tokenizer, [prompt(40), prompt(23)], second, draft=draft, budget=12, **kv)
    config = DecodeConfig(
        max_new_tokens=60, gamma=4, draft=draft, budget=12, draft_weights="same", **kv
    )
    spec = second.spec if draft.startswith("other") else None
    need = draft_need(run_shape(model.spec, config, spec))
    stores = {id(s): s for s in _stores(run.drafter) if s is not run.cache}
    held = sum(s.k.nbytes + s.v.nbytes for s in stores.values())
    view = getattr(run.drafter, "_view", None)
    if isinstance(view, DynamicView):  # one layer's block comes with every pass
        spec = view.cache.model.spec
        most = min(view.chooser.selector.most(12), view.cache.capacity) + 4
        held += 2 * most * spec.kv_bytes_per_token(4) // spec.layers
        assert need.index == view.chooser.index.nbytes
    assert need.kv == held
    assert need.weights == (second.spec.parameters * 4 if draft.startswith("other") else 0)


def _stores(drafter):
    view = getattr(drafter, "_view", None)
    holders = [getattr(drafter, "_cache", None), getattr(view, "store", None)]
    inner = getattr(drafter, "_inner", None)
    own = [] if inner is None else _stores(inner.drafter)
    return [*own, *(store for store in holders if store is not None)]


def test_the_forecast_of_a_model_under_the_self_draft_is_that_of_both(tiny):
    """Weights with their int8 twins, queries of the prompts; caches, with more room for drafts."""
    model, second = tiny().ours.spec, other(tiny).spec

    def need(draft, **settings):
        config = DecodeConfig(gamma=4, draft=draft, selector="snapkv", **settings)
        return draft_need(run_shape(model, config, second if "other" in draft else None))

    for settings in ({"draft_weights": "int8"}, {"draft_weights": "same"}):
        both, own, small = (need(d, **settings) for d in ("other+self", "self", "other"))
        assert both.weights == own.weights + small.weights
        assert both.kv > own.kv + small.kv and both.queries == small.queries
