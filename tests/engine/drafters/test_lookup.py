"""Lookup drafts what followed the same tokens before, and the target's distribution stays."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from magicdec.engine.accept.chain import Proposal, Rejection
from magicdec.engine.accept.sampling import Noise
from magicdec.engine.config import LOOKUP_TOKENS, SamplingConfig
from magicdec.engine.drafters.ngram import continuation

CPU = torch.device("cpu")


def naive_continuation(text: list[int], count: int) -> list[int]:
    for size in range(LOOKUP_TOKENS[1], LOOKUP_TOKENS[0] - 1, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if text[start : start + size] == text[-size:]:
                said = list(text)
                for i in range(count):
                    said.append(said[start + size + i])
                return said[len(text) :]
    return []


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 8))
def test_lookup_finds_what_followed_before(text, count):
    assert continuation(np.asarray(text, np.int64), count) == naive_continuation(text, count)


def test_lookup_repeats_what_repeats_and_drafts_nothing_else(tiny, prompt, decode):
    """A row without a match takes no part in drafting; its mates still gain."""
    loop = tuple(range(3, 13)) * 4
    got = decode(
        tiny().ours, [loop, tuple(range(20, 60))], gamma=3, draft="lookup", max_new_tokens=60,
        ignore_eos=True,
    )  # fmt: skip
    assert any(row.accepted for step in got.steps for row in step.rows)
    first = got.steps[0].rows
    assert first[-1].row == 1 and first[-1].drafted == 0 and len(first[-1].tokens) == 1
    end = got.events[-1]
    assert end.draft_entries_read == 0


def test_looked_up_tokens_leave_the_targets_distribution_alone():
    trials, vocabulary = 20_000, 6
    noise = Noise(3, trials, 2, CPU)
    for slot in range(trials):
        noise.admit(slot, slot)
    rule = Rejection(SamplingConfig(temperature=1.0), noise)
    rule.begin(range(trials), [0] * trials, [1] * trials)
    tokens = torch.full((trials, 1), 2)
    target = torch.tensor([0.1, 1.0, 0.7, -1.0, 0.0, 0.4])
    # Every third row has found nothing; what stands in its place must not count.
    lengths = [int(row % 3 > 0) for row in range(trials)]
    verdict = rule.accept(
        Proposal(tokens, rule.certain(tokens, vocabulary), lengths), target.expand(trials, 2, -1)
    )
    assert not verdict.accepted[::3].any()
    first = torch.where(verdict.accepted > 0, tokens[:, 0], verdict.next).numpy()
    for rows in (slice(0, None, 3), slice(1, None, 3)):
        counts = np.bincount(first[rows], minlength=vocabulary)
        p = target.double().softmax(0).numpy()
        assert chisquare(counts, counts.sum() * p).pvalue > 1e-3
