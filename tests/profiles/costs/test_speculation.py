"""Ω at its limits, and speedups that follow from pass times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.costs.speculation import Drafting, step_costs

gammas = st.integers(1, 64)


def tokens_per_step(alpha, gamma):
    return AcceptanceRates((alpha,), constant=True).tokens_per_step(gamma)


@given(gammas)
def test_nothing_accepted_leaves_the_bonus_token(gamma):
    assert tokens_per_step(0.0, gamma) == 1


@given(gammas)
def test_everything_accepted_gives_all_and_the_bonus_token(gamma):
    assert tokens_per_step(1.0, gamma) == gamma + 1


@given(st.floats(0, 1), gammas)
def test_tokens_per_step_is_the_sum_of_powers(alpha, gamma):
    expected = sum(alpha**i for i in range(gamma + 1))
    assert tokens_per_step(alpha, gamma) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0, 0.999), gammas)
def test_more_acceptance_and_longer_drafts_give_more(alpha, gamma):
    assert tokens_per_step(alpha + 0.001, gamma) > tokens_per_step(alpha, gamma)
    assert tokens_per_step(alpha, gamma + 1) >= tokens_per_step(alpha, gamma)


def test_only_the_drafted_positions_count():
    assert AcceptanceRates((0.5, 0.5, 0.9)).tokens_per_step(2) == 1.75


def test_speedup_by_hand(model, ideal):
    """Weights cost 1 s, everything else nothing but the KV of 1 s per 100 entries and row."""
    device = replace(ideal.device, flops=1e30, bandwidth=model.streamed * 2)
    hardware = replace(ideal, device=device, constants=replace(ideal.constants, step_s=0.5))
    per_entry = model.kv_bytes_per_token(2) / device.bandwidth
    context, budget = 1 / per_entry, 0.25 / per_entry
    costs = step_costs(model, hardware, Drafting(budget), rows=2, context=context, gamma=3)
    assert costs.plain == pytest.approx(1 + 2)
    assert costs.draft == pytest.approx(1 + 0.5)
    assert costs.verify == pytest.approx(1 + 2)
    assert costs.step(3) == pytest.approx(3 * 1.5 + 3 + 0.5)
    assert costs.speedup(3, 2.0) == pytest.approx(2 * 3 / 8)


def test_a_full_cache_drafts_like_plain_decoding(model, ideal):
    costs = step_costs(model, ideal, Drafting(budget=None), rows=4, context=50, gamma=2)
    assert costs.draft == costs.plain
    assert costs.speedup(2, 3.0) < 1.0 + 1e-12  # even when everything is accepted


def test_a_budget_beyond_the_context_reads_the_context(model, ideal):
    within, beyond = (
        step_costs(model, ideal, Drafting(budget=b), rows=1, context=50, gamma=1) for b in (50, 99)
    )
    assert within.draft == beyond.draft


def test_selection_is_paid_by_context(model, ideal):
    device = replace(ideal.device, flops=1e30)
    hardware = replace(ideal, device=device)
    drafting = Drafting(budget=10, select_per_token=0.5)
    costs = step_costs(model, hardware, drafting, rows=3, context=np.array([100, 200]), gamma=1)
    per_entry = model.kv_bytes_per_token(2) / 100
    assert costs.search == pytest.approx([3 * 50 * per_entry, 3 * 100 * per_entry])
    assert step_costs(model, hardware, Drafting(10), rows=3, context=100, gamma=1).search == 0


def test_another_draft_model_and_other_weights(model, ideal):
    small = replace(model, layers=1)
    shapes = {"rows": 1, "context": 10, "gamma": 2}
    own = step_costs(model, ideal, Drafting(4, model=small), **shapes)
    assert own.draft_pass.weights == pytest.approx(small.streamed * 2 / 100)
    assert own.verify_pass.weights == pytest.approx(model.streamed * 2 / 100)
    int8 = step_costs(model, ideal, Drafting(4, weights="int8", weight_bytes=1), **shapes)
    assert int8.draft_pass.weights == pytest.approx(model.streamed / 100)
