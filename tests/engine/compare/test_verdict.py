"""The losslessness verdict tells a tie from a bug, and the clock's phases add up."""

from __future__ import annotations

import time

import pytest
import torch

from magicdec.engine.clock import Clock
from magicdec.engine.compare.lossless import compare
from magicdec.engine.compare.verdict import first_difference
from magicdec.engine.config import SamplingConfig
from magicdec.engine.engine import Engine
from magicdec.engine.events import PHASES
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.request import Request
from magicdec.kernels.backends import get_backend

CPU = torch.device("cpu")


@pytest.fixture
def verdict(tiny, prompt, decode):
    """Compares a model's plain tokens with altered ones."""
    model = tiny().ours
    prompts = [prompt(40), prompt(25)]
    plain = decode(model, prompts, gamma=0, max_new_tokens=12, ignore_eos=True).tokens
    requests = [Request("d", tuple(p), i) for i, p in enumerate(prompts)]

    def judge(alter=lambda tokens: tokens, model=model, plain=plain):
        other = [list(plain[0]), alter(list(plain[1]))]
        return compare(model, get_backend("sdpa", CPU), requests, plain, other, width=4)

    return judge


def test_equal_outputs_are_identical(verdict):
    found = verdict()
    assert (found.checked, found.identical, found.ok, found.divergences) == (True, True, True, ())


@pytest.mark.parametrize("at", [0, 1, 7, 11])
def test_a_wrong_token_is_a_bug_and_is_located(verdict, at):
    def alter(tokens):
        return [*tokens[:at], (tokens[at] + 1) % 128, *tokens[at + 1 :]]

    found = verdict(alter)
    (divergence,) = found.divergences
    assert (divergence.row, divergence.position) == (1, at)
    assert divergence.gap > divergence.tolerance > 0
    assert not divergence.tie and not found.ok and found.identical is False


def test_an_output_that_ends_early_is_a_bug(verdict):
    found = verdict(lambda tokens: tokens[:5])
    assert found.divergences[0].position == 5 and not found.ok


def test_two_tokens_of_equal_logit_are_a_tie(tiny, verdict):
    """Twin rows of the output head make two tokens tie for ever: either is right."""
    pair = tiny()
    tied: dict[str, int] = {}

    def alter(tokens):
        tied["token"] = tokens[3]
        return [*tokens[:3], 127, *tokens[4:]]

    verdict(alter)
    weights = dict(pair.theirs.state_dict())
    head = weights["lm_head.weight"].clone()
    head[127] = head[tied["token"]]
    weights["lm_head.weight"] = head
    twin = Decoder(pair.ours.spec, weights, device=CPU, dtype=torch.float32)
    found = verdict(alter, model=twin)
    assert found.divergences[0].tie and found.ok and not found.identical
    assert abs(found.divergences[0].gap) <= found.divergences[0].tolerance


def test_penalties_decide_what_is_a_tie(tiny, prompt, decode):
    """By a penalty of their difference the two likeliest tokens tie; without it they do not."""
    model, text = tiny().ours, prompt(40)
    backend, request = get_backend("sdpa", CPU), Request("d", text, 0)
    with torch.no_grad():
        logits = tiny().theirs(torch.tensor([text])).logits[0, -1]
    fresh = torch.tensor([token not in text for token in range(128)])
    best = int(logits.argmax())
    first = decode(model, [text], gamma=0, max_new_tokens=1).tokens[0]
    assert first == [best]
    other = int(
        logits.masked_fill(~fresh, -1e9).masked_fill(torch.arange(128) == best, -1e9).argmax()
    )
    assert best in text and logits[other] > 0
    penalty = float(logits[best] / logits[other])
    for factor, tie in ((1.0, True), (1.2, False)):
        sampling = SamplingConfig(repetition_penalty=penalty * factor)
        found = compare(model, backend, [request], [[best]], [[other]], width=4, sampling=sampling)
        assert found.ok is tie
    assert not compare(model, backend, [request], [[best]], [[other]], width=4).ok


def test_first_difference():
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2


def test_a_corrupted_cache_is_found_out(tiny, prompt, decode, monkeypatch):
    """A commit that keeps rejected tokens changes the text, and the verdict calls it a bug."""
    from magicdec.engine.cache.kv import KVCache

    model, text = tiny().ours, prompt(50)
    settings = dict(gamma=4, selector="window", budget=6, max_new_tokens=20, ignore_eos=True)
    plain = decode(model, [text], **{**settings, "gamma": 0}).tokens

    def keep_all(self, slots, counts):
        for slot in slots:
            self.lengths[slot] += 5 if len(counts) == 1 and counts[0] < 5 else counts[0]

    # Only while decoding: prefill advances by whole chunks.
    original = KVCache.advance
    monkeypatch.setattr(
        KVCache,
        "advance",
        lambda self, slots, counts: (keep_all if counts[0] <= 5 else original)(self, slots, counts),
    )
    broken = decode(model, [text], capacity=200, **settings).tokens
    monkeypatch.undo()
    requests = [Request("d", tuple(text), 0)]
    found = compare(model, get_backend("sdpa", CPU), requests, plain, broken, width=5)
    assert not found.ok


class Ticking:
    """A clock that advances by one second each time it is read."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1.0
        return self.time


def test_phases_are_exclusive_and_nest():
    clock = Clock(now=Ticking())
    with clock.phase("draft"), clock.phase("select"):
        pass
    times = clock.lap()
    assert (times.draft, times.select, times.other) == (2.0, 1.0, 2.0)
    assert times.wall == 5.0
    assert clock.lap().wall == 1.0


def test_an_error_inside_a_phase_leaves_the_clock_usable():
    clock = Clock(now=Ticking())
    with pytest.raises(RuntimeError), clock.phase("verify"):
        raise RuntimeError
    clock.lap()
    assert clock.lap().other == 1.0


def test_phases_of_a_run_sum_to_its_wall_time(tiny, prompt, tokenizer):
    from magicdec.engine.config import DecodeConfig

    engine = Engine(
        tiny().ours, tokenizer, get_backend("sdpa", CPU), slots=2, capacity=140, chunk=32
    )
    requests = [Request("d", prompt(80), 0), Request("e", prompt(60), 1)]
    config = DecodeConfig(gamma=3, budget=40, max_new_tokens=30, ignore_eos=True)
    began = time.perf_counter()
    events = list(engine.run(requests, config))
    wall = time.perf_counter() - began
    phases = events[-1].phases
    assert phases.wall == pytest.approx(wall, rel=0.01, abs=0.002)
    assert all(getattr(phases, name) > 0 for name in PHASES)
    steps = [e.phases for e in events if type(e).__name__ == "StepFinished"]
    steps += [e.waited for e in events if type(e).__name__ == "StepFinished"]
    for name in ("select", "draft", "verify", "commit"):
        assert sum(getattr(s, name) for s in steps) == pytest.approx(getattr(phases, name))


def test_the_clock_synchronises_only_when_asked():
    calls = []
    clock = Clock(now=Ticking(), synchronize=lambda: calls.append(1))
    with clock.phase("draft"):
        pass
    assert len(calls) == 2
