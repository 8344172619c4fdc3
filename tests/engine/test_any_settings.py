"""Whatever drafts, over whatever it sees, however many: greedy text is plain decoding's own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import FIXED, Adaptive, Entry, Schedule
from magicdec.engine.memory.run_shape import capacity

EXAMPLES = 12  # MAGICDEC_EXAMPLES asks for more


@dataclass(frozen=True)
class Script:
    """γ by the run's steps, over and over."""

    gammas: tuple[int, ...]
    stop: float | None = None
    name: str = "script"
    source: str = ""

    def gamma(self, now: Any) -> int:
        return min(now.most, self.gammas[now.history.steps % len(self.gammas)])


SELECTORS = st.sampled_from([
    ("snapkv", {}), ("streaming", {}), ("window", {}), ("h2o", {}), ("triforce", {}), ("full", {}),
    ("topk", {}), ("quest", {"page": "3", "pages": "1"}), ("quest", {}),
    ("pqcache", {"m": "4", "bits": "4", "sample": "16", "sinks": "2", "recent": "3"}),
    ("pqcache", {"m": "1", "bits": "8", "sample": "256", "sinks": "20", "recent": "20"}),
    ("reuse", {"refresh": "1"}), ("reuse", {"refresh": "3"}),
])  # fmt: skip
DYNAMIC = ("topk", "quest", "pqcache", "reuse")
STOPS = st.none() | st.floats(0.05, 0.95)
SCRIPTS = st.builds(Script, st.lists(st.integers(0, 32), min_size=1, max_size=12).map(tuple), STOPS)
LATE = st.integers(5, 30).map(lambda n: Script((0,) * n + (5,)))
POLICIES = st.one_of(
    st.just(FIXED), st.just(FIXED), SCRIPTS, LATE, st.just(Auto()),
    st.floats(0.05, 0.95).map(Adaptive),
    st.builds(
        lambda entries: Schedule(tuple(Entry(*place, gamma) for place, gamma in entries.items())),
        st.dictionaries(
            st.tuples(st.integers(1, 5), st.integers(1, 70)), st.integers(0, 32), min_size=1,
            max_size=4,
        ),
    ),
)  # fmt: skip
DRAFTS = (
    "self",
    "self",
    "layers:1",
    "other",
    "lookup",
    "lookup+self",
    "layers:1+self",
    "other+self",
)
MODELS = {
    "llama": {}, "mistral": {"sliding_window": 7}, "qwen3": {"head_dim": 20},
    "qwen2": dict(num_attention_heads=3, num_key_value_heads=1, hidden_size=63, head_dim=22),
}  # fmt: skip


PENALTIES = st.one_of(
    st.just({}),
    st.fixed_dictionaries({}, optional={
        "repetition_penalty": st.sampled_from([0.7, 1.05, 1.3, 3.0]),
        "presence_penalty": st.floats(-2, 2), "frequency_penalty": st.floats(-2, 2),
    }),
)  # fmt: skip


@st.composite
def runs(draw: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A model, what plain decoding is told, and what the others are told besides."""
    kind = draw(st.sampled_from([*MODELS]))
    common = {
        "max_new_tokens": draw(st.integers(1, 40)),
        "ignore_eos": draw(st.booleans()),
        "stop": draw(st.sampled_from([(), (), ("w5 w", "w9"), ("w1",)])),
    }
    draft = draw(st.sampled_from(DRAFTS))
    tree = draw(st.sampled_from(["none", "specexec", "sequoia"]))
    if draft not in ("self", "layers:1"):
        tree = "none"
    selector, options = draw(SELECTORS)
    if (tree != "none" or draft.endswith("+self")) and selector in DYNAMIC:
        selector, options = "snapkv", {}
    if draft == "other" and selector == "reuse":
        selector, options = "topk", {}
    if kind == "qwen2" and selector == "pqcache" and draft != "other":  # whose heads are its own
        options = {**options, "m": "11"}
    policy = draw(POLICIES)
    if tree != "none" or (draft == "lookup" and policy.stop is not None):
        policy = FIXED
    own: dict[str, Any] = {
        "draft": draft, "tree": tree, "selector": selector, "selector_options": options,
        "gamma_policy": policy, "gamma": draw(st.integers(1, 5) | st.integers(1, 32)),
        "budget": draw(st.integers(1, 20) | st.integers(1, 200)),
    }  # fmt: skip
    if selector == "streaming":
        own["budget"] += 4  # its sinks come first
    if tree != "none":
        own["tree_nodes"] = draw(st.integers(1, 20) | st.integers(1, 128))
        own["tree_rates"] = draw(
            st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), min_size=1, max_size=5)
            .filter(lambda rates: rates[0] > 0).map(tuple)
        )  # fmt: skip
    if draft != "lookup" and draw(st.integers(0, 4)) == 0:
        own["draft_kv"] = "full"
    return kind, common, own


@given(
    run=runs(), lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    slots=st.integers(1, 5), attention=st.sampled_from(["sdpa", "reference", "auto"]),
    seed=st.none() | st.integers(0, 9), penalties=PENALTIES,
)  # fmt: skip
@settings(
    max_examples=int(os.environ.get("MAGICDEC_EXAMPLES", EXAMPLES)), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
def test_greedy_text_is_plain_decodings_whatever_is_set(
    tiny, prompt, decode, run, lengths, slots, attention, seed, penalties
):
    kind, common, own = run
    model = tiny(kind, **MODELS[kind]).ours
    prompts = [prompt(n, i) for i, n in enumerate(lengths)]
    other = tiny("qwen2", seed=5, num_hidden_layers=1, num_key_value_heads=1).ours
    slots = min(slots, len(prompts))
    room = capacity(DecodeConfig(**common, **own), max(lengths))
    own.update(draft_decoder=other, slots=slots, attention=attention, capacity=room)
    greedy = SamplingConfig(**penalties)
    plain = decode(model, prompts, sampling=greedy, gamma=0, **common)
    got = decode(model, prompts, sampling=greedy, **common, **own)
    assert (got.tokens, got.reasons, got.texts) == (plain.tokens, plain.reasons, plain.texts)
    for step in got.steps:
        assert all(0 <= r.accepted <= r.depth <= r.drafted for r in step.rows)
    # Sampled: the seed and the row's own text decide, unless the clock does.
    if seed is None or isinstance(own["gamma_policy"], Auto):
        return
    sampling = SamplingConfig(1.1, top_k=9, top_p=0.9, seed=seed, **penalties)
    once = decode(model, prompts, sampling=sampling, **common, **own)
    again = decode(model, prompts, sampling=sampling, **common, **own)
    assert once.tokens == again.tokens
    if own["tree"] == "specexec":
        plain = decode(model, prompts, sampling=sampling, gamma=0, **common)
        assert once.tokens == plain.tokens
