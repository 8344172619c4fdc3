"""Replaying lookup over a text says exactly what a run over it did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.engine.config import SamplingConfig
from magicdec.profiles.acceptance.rates import pooled
from magicdec.profiles.acceptance.replay import Row, lookup_hits, lookup_walk
from magicdec.profiles.predict.run import expected_of_lookup

NEW = 40


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("gamma", [1, 3, 6])
def test_it_is_what_a_run_does(tiny, decode, gamma, temperature):
    # Few distinct words, so that much repeats; sharp, so that some of it is said again.
    prompts = [[5, 9, 7, 5, 9, 8] * 9, [3, 4, 3, 4, 4] * 8, [11, 12, 13] * 7]
    got = decode(
        tiny().ours, prompts, gamma=gamma, draft="lookup", max_new_tokens=NEW, ignore_eos=True,
        sampling=SamplingConfig(temperature, seed=3) if temperature else SamplingConfig(),
    )  # fmt: skip
    walks = []
    for row, prompt in enumerate(prompts):
        tokens = got.tokens[row]
        walks.append(lookup_walk(Row(prompt, tokens), gamma))
        shares = [s for step in got.steps for s in step.rows if s.row == row]
        assert walks[-1].steps == sum(share.drafted > 0 for share in shares)
        assert sum(walks[-1].accepted) == sum(share.accepted for share in shares)
        assert sum(walks[-1].drafted) == sum(share.drafted for share in shares)
    assert pooled(walks).steps > 0, "nothing was drafted: the test tests nothing"


@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.integers(1, 59), st.integers(1, 6))
def test_counts_agree_with_each_other(text, cut, gamma):
    cut = min(cut, len(text) - 1)
    row = Row(text[:cut], text[cut:])
    walk = lookup_walk(row, gamma)
    assert all(a <= d for a, d in zip(walk.accepted, walk.drafted, strict=True))
    for counts in (walk.accepted, walk.drafted):
        assert list(counts) == sorted(counts, reverse=True)
    assert sum(walk.accepted) <= lookup_hits(row).sum() + gamma * walk.steps
    assert len(lookup_hits(row)) == len(row.tokens) - 1


def test_a_text_that_repeats_is_expected_to_be_accepted():
    again = expected_of_lookup([[1, 2, 3, 4, 5] * 40], 64, 4)
    assert again.rates == (1.0,) * 4 and again.share == pytest.approx(1.0, abs=0.1)
    never = expected_of_lookup([list(range(200))], 64, 4)
    assert never.share == 0 and "nothing" in never.source
    assert expected_of_lookup([[1]], 64, 4).share == 0
