"""Who drafts does not show in the text: lookups, early exits and other models are lossless."""

from __future__ import annotations

import pytest

from magicdec.engine.config import SamplingConfig
from magicdec.engine.selectors.base import SELECTORS

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
