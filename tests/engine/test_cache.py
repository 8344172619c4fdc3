"""What the caches hold after rejections, copies and rings."""

from __future__ import annotations

import pytest
import torch

from magicdec.engine.accept.chain import Greedy
from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import prefill
from magicdec.engine.clock import Clock
from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafters.base import SelfDrafter
from magicdec.engine.errors import ConfigError, MagicdecError
from magicdec.engine.request import Request
from magicdec.engine.rows import Row
from magicdec.engine.selection import SELECTORS
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.step import speculative_step
from magicdec.engine.views.make import make_view
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def make_cache(model, rows: int, capacity: int = 120) -> KVCache:
    return KVCache(model, get_backend("sdpa", CPU), rows=rows, capacity=capacity)


class Stepper:
    """Prefilled rows and a drafter, to be stepped by hand."""

    def __init__(self, model, tokenizer, prompts, selector: str, budget: int) -> None:
        self.model = model
        self.cache = make_cache(model, len(prompts))
        self.view = make_view(
            self.cache, SELECTORS.create(selector), budget=budget,
            context=max(map(len, prompts)), growth=60, gamma=4,
        )  # fmt: skip
        self.rows = []
        config = DecodeConfig(max_new_tokens=60, ignore_eos=True)
        for slot, tokens in enumerate(prompts):
            list(prefill(model, self.cache, slot, tokens, chunk=16))
            self.view.admit(slot)
            row = Row(Request("doc", tokens, slot), slot, config, tokenizer, ())
            row.take([int(self.cache.prompts[slot].logits.argmax())])
            self.rows.append(row)

    def step(self) -> list[int]:
        outcomes = speculative_step(
            self.model, self.cache, SelfDrafter(self.model, self.view, "same"), Greedy(), self.rows,
            [4] * len(self.rows), Clock(),
        )  # fmt: skip
        for row, outcome in zip(self.rows, outcomes, strict=True):
            row.take(outcome.tokens)
        return [o.accepted for o in outcomes]

    def text(self, slot: int) -> tuple[int, ...]:
        """All tokens that the cache holds: the last one said is pending."""
        row = self.rows[slot]
        return (*row.request.tokens, *row.tokens[:-1])


@pytest.mark.parametrize("selector", SELECTORS.names())
def test_after_rejections_the_full_cache_equals_a_fresh_prefill(tiny, prompt, tokenizer, selector):
    # Quest attends to everything in two layers.
    model = tiny(num_hidden_layers=3).ours
    run = Stepper(model, tokenizer, [prompt(40), prompt(23)], selector, budget=10)
    accepted = [run.step() for _ in range(6)]
    if selector != "full":
        assert any(n < 4 for step in accepted for n in step), "nothing was ever rejected"
    for slot in range(2):
        text = run.text(slot)
        assert run.cache.lengths[slot] == len(text)
        fresh = make_cache(model, 1)
        list(prefill(model, fresh, 0, text, chunk=16))
        for ours, theirs in ((run.cache.k, fresh.k), (run.cache.v, fresh.v)):
            torch.testing.assert_close(
                ours[:, slot, :, : len(text)], theirs[:, 0, :, : len(text)], **CLOSE
            )


def test_a_growing_draft_cache_holds_the_targets_kv(tiny, prompt, tokenizer):
    """SnapKV: the selected prompt entries, then every accepted token, all from the full cache."""
    run = Stepper(tiny().ours, tokenizer, [prompt(60), prompt(45)], "snapkv", budget=40)
    before = [run.view.store.k[:, slot, :, :40].clone() for slot in range(2)]
    for _ in range(5):
        run.step()
    for slot, length in ((0, 60), (1, 45)):
        said = run.cache.lengths[slot] - length
        assert run.view.entries(slot) == 40 + said
        for mine, full in ((run.view.store.k, run.cache.k), (run.view.store.v, run.cache.v)):
            assert torch.equal(
                mine[:, slot, :, 40 : 40 + said], full[:, slot, :, length : length + said]
            )
        assert torch.equal(run.view.store.k[:, slot, :, :40], before[slot])


@pytest.mark.parametrize("selector,sinks", [("streaming", 4), ("window", 0)])
@pytest.mark.parametrize("budget", [5, 11, 50, 100], ids=lambda b: f"K{b}")
def test_a_rolling_draft_cache_is_sinks_and_the_last_tokens(
    tiny, prompt, tokenizer, selector, sinks, budget
):
    """Whatever was accepted, the ring holds the newest positions, as a set."""
    run = Stepper(tiny().ours, tokenizer, [prompt(40), prompt(23)], selector, budget)
    for _ in range(7):
        run.step()
    for slot in range(2):
        length = run.cache.lengths[slot]
        if length <= budget:
            positions = list(range(length))
        else:
            positions = [*range(sinks), *range(length - budget + sinks, length)]
        assert run.view.entries(slot) == len(positions)
        held = run.view.store.k[0, slot, 0, : len(positions)]  # [W, D]
        want = run.cache.k[0, slot, 0, positions]
        distance = torch.cdist(held, want, compute_mode="donot_use_mm_for_euclid_dist")
        assert sorted(distance.argmin(dim=1).tolist()) == list(range(len(positions)))
        assert distance.min(dim=1).values.max() < 1e-5


def test_prompts_share_what_they_have_in_common(tiny, prompt):
    model = tiny().ours
    cache = make_cache(model, 3, capacity=300)
    long = prompt(280)
    assert list(prefill(model, cache, 0, long, chunk=50))[-1].reused == 0
    staggered = list(prefill(model, cache, 1, long[:250], chunk=50))
    assert staggered[-1].done == 250
    assert staggered[-1].reused == 250 - 64  # the last queries are computed, nothing else
    question = (*long[:200], 5, 6, 7)
    assert list(prefill(model, cache, 2, question, chunk=50))[-1].reused == 203 - 64
    for slot, text in ((1, long[:250]), (2, question)):
        fresh = make_cache(model, 1, capacity=300)
        list(prefill(model, fresh, 0, text, chunk=300))
        torch.testing.assert_close(
            cache.k[:, slot, :, : len(text)], fresh.k[:, 0, :, : len(text)], **CLOSE
        )
        torch.testing.assert_close(cache.prompts[slot].logits, fresh.prompts[0].logits, **CLOSE)
        torch.testing.assert_close(cache.prompts[slot].queries, fresh.prompts[0].queries, **CLOSE)


def test_the_same_prompt_again_costs_nothing(tiny, prompt, monkeypatch):
    model = tiny().ours
    cache = make_cache(model, 1)
    list(prefill(model, cache, 0, prompt(100), chunk=50))
    monkeypatch.setitem(vars(model), "forward", lambda *_: pytest.fail("computed again"))
    (chunk,) = prefill(model, cache, 0, prompt(100), chunk=50)
    assert (chunk.done, chunk.reused) == (100, 100)


def test_dynamic_rope_shares_only_between_prompts_of_one_length(tiny, prompt):
    rope = (("rope_type", "dynamic"), ("factor", 2.0))
    model = tiny("llama", rope=rope, max_position_embeddings=80).ours
    cache = make_cache(model, 2)
    list(prefill(model, cache, 0, prompt(110), chunk=50))
    assert list(prefill(model, cache, 1, prompt(110)[:100], chunk=50))[-1].reused == 0


class Crooked(KVSelector):
    """Breaks the contract in the way it is told to."""

    result = None

    def select(self, keys, queries, budget):
        return type(self).result(keys, budget)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda keys, w: torch.zeros(keys.shape[0], w, dtype=torch.int64),  # not unique
        lambda keys, w: torch.arange(w - 1, -1, -1).expand(keys.shape[0], -1),  # not sorted
        lambda keys, w: torch.arange(1000, 1000 + w).expand(keys.shape[0], -1),  # out of range
        lambda keys, w: torch.arange(w - 1).expand(keys.shape[0], -1),  # too few
        lambda keys, w: torch.arange(w).float().expand(keys.shape[0], -1),  # not integers
    ],
    ids=["duplicates", "unsorted", "range", "width", "dtype"],
)
def test_a_selector_that_breaks_its_contract_is_named(tiny, prompt, decode, wrong, monkeypatch):
    monkeypatch.setattr(Crooked, "result", staticmethod(wrong))
    with pytest.raises(MagicdecError, match="selector Crooked returned"):
        decode(tiny().ours, [prompt(30)], selector=f"{__name__}:Crooked", budget=8)


def test_a_selector_that_fails_is_named_with_its_reason(tiny, prompt, decode, monkeypatch):
    def fail(keys, budget):
        raise KeyError("first line\nsecond")

    for result, message in (
        (fail, "selector Crooked failed in select: KeyError"),
        (lambda k, b: None, "NoneType"),
    ):
        monkeypatch.setattr(Crooked, "result", staticmethod(result))
        with pytest.raises(MagicdecError, match=message) as error:
            decode(tiny().ours, [prompt(30)], selector=f"{__name__}:Crooked", budget=8)
        assert "\n" not in str(error.value)


def test_a_budget_too_small_for_the_sinks_is_refused(tiny, prompt, decode):
    with pytest.raises(ConfigError, match="budget 4 leaves no room beside 4 sinks"):
        decode(tiny().ours, [prompt(30)], selector="streaming", budget=4)
