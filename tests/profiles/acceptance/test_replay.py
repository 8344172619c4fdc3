"""Walks through a known text, by hand and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.profiles.acceptance.intervals import length_interval
from magicdec.profiles.acceptance.rates import AcceptanceCounts, pooled
from magicdec.profiles.acceptance.replay import walk

CHANCES = st.lists(st.floats(0, 1), min_size=0, max_size=40).map(np.array)
HITS = st.lists(st.sampled_from([0.0, 1.0]), min_size=0, max_size=60).map(np.array)


def simulated(kept: np.ndarray, gamma: int) -> tuple[int, list[int], list[int]]:
    """Greedy speculative decoding, one step after the other, as the engine counts it."""
    at, steps, drafted, accepted = 0, 0, [0] * gamma, [0] * gamma
    while at < len(kept):
        width = min(gamma, len(kept) - at - 1)
        run = 0
        while run < width and kept[at + run]:
            run += 1
        for j in range(width):
            drafted[j] += 1
            accepted[j] += j < run
        steps += width > 0
        at += run + 1
    return steps, drafted, accepted


def test_a_text_by_hand() -> None:
    # γ = 2 over 7 tokens: ✓✗ | ✗ | ✓✓+bonus | (one left: nothing to draft)
    found = walk(np.array([1, 0, 0, 1, 1, 0, 1.0]), 2)
    assert found.drafted == (3, 3)
    assert found.accepted == (2, 1)
    assert found.mean_length == 2.0


def test_nothing_to_draft_counts_no_step() -> None:
    for tokens in (0, 1):
        found = walk(np.ones(tokens), 3)
        assert found.steps == 0 and found.mean_length == 1.0
        assert found.shares == ()


def test_the_last_steps_draft_only_what_they_can_use() -> None:
    found = walk(np.ones(6), 4)  # five tokens, then the last one without a draft
    assert found.drafted == (1, 1, 1, 1)
    found = walk(np.ones(8), 4)  # five, then two drafts and a bonus
    assert found.drafted == (2, 2, 1, 1)


@given(HITS, st.integers(1, 8))
def test_greedy_walks_are_speculative_decoding(kept: np.ndarray, gamma: int) -> None:
    found = walk(kept, gamma)
    steps, drafted, accepted = simulated(kept, gamma)
    assert found.steps == steps
    assert list(found.drafted) == drafted
    assert list(found.accepted) == accepted


@given(CHANCES, st.integers(1, 8))
def test_a_step_gives_one_to_gamma_plus_one_tokens(kept: np.ndarray, gamma: int) -> None:
    length = walk(kept, gamma).mean_length
    assert 1 - 1e-9 <= length <= gamma + 1 + 1e-9


@given(CHANCES, st.integers(1, 8))
def test_chances_are_the_mean_over_walks(kept: np.ndarray, gamma: int) -> None:
    """Counts of a text are linear in each token's chance: check that one token at a time."""
    if not len(kept):
        return
    place = len(kept) // 2
    never, always = kept.copy(), kept.copy()
    never[place], always[place] = 0.0, 1.0
    hits, misses = (np.array(walk(one, gamma).accepted) for one in (always, never))
    mixed = kept[place] * hits + (1 - kept[place]) * misses
    assert np.allclose(walk(kept, gamma).accepted, mixed)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
def test_longer_drafts_never_shorten_the_steps_of_an_even_text(alpha: float) -> None:
    """And the length is (1 - α^(γ+1)) / (1 - α), but for the text's end."""
    lengths = [walk(np.full(4000, alpha), gamma).mean_length for gamma in range(1, 9)]
    assert lengths == sorted(lengths)
    for gamma, length in enumerate(lengths, start=1):
        expected = sum(alpha**j for j in range(gamma + 1))
        assert length == pytest.approx(expected, rel=5e-3)


def test_rows_pool_by_counts() -> None:
    rows = [walk(np.ones(41), 4), walk(np.zeros(40), 4)]
    both = pooled(rows)
    assert both.steps == rows[0].steps + rows[1].steps
    assert sum(both.accepted) == sum(rows[0].accepted)


def test_an_interval_needs_two_rows_and_holds_the_pooled_length() -> None:
    rng = np.random.default_rng(0)
    rows = [walk((rng.random(64) < 0.7).astype(float), 3) for _ in range(8)]
    assert length_interval(rows[:1]) is None
    interval = length_interval(rows)
    assert interval is not None
    low, high = interval
    assert 1 <= low < pooled(rows).mean_length < high <= 4
    assert length_interval([rows[0]] * 5) == pytest.approx((rows[0].mean_length,) * 2)


@pytest.mark.parametrize(("rows", "alpha"), [(2, 0.7), (3, 0.95), (6, 0.7), (12, 0.97)])
def test_the_interval_holds_the_truth_as_often_as_it_says(rows: int, alpha: float) -> None:
    rng = np.random.default_rng(1)
    truth = walk(np.full(200, alpha), 3).mean_length
    held = 0
    for _ in range(200):
        walks = [walk((rng.random(200) < alpha).astype(float), 3) for _ in range(rows)]
        interval = length_interval(walks)
        assert interval is not None
        low, high = interval
        assert 1 < low <= high < 4, "inside without being cut"
        held += low <= truth <= high
    assert 180 <= held <= 199


def test_an_interval_near_the_end_reaches_further_to_the_roomy_side() -> None:
    rows = [walk(np.array([1.0] * 60 + [0.0] * misses), 3) for misses in (0, 1, 3)]
    low, high = length_interval(rows) or (0.0, 0.0)
    length = pooled(rows).mean_length
    assert length - low > high - length > 0


def test_rows_that_accept_all_or_nothing_have_an_interval_of_no_width() -> None:
    assert length_interval([walk(np.ones(41), 4)] * 3) == (5.0, 5.0)
    assert length_interval([walk(np.zeros(41), 4)] * 3) == (1.0, 1.0)
    assert length_interval([walk(np.ones(0), 4)] * 3) == (1.0, 1.0)  # nothing drafted


def test_a_walk_knows_rates_of_drafted_positions_only() -> None:
    assert AcceptanceCounts((4.0, 2.0, 0.0), (2.0, 1.0, 0.0)).shares == (0.5, 0.5)
