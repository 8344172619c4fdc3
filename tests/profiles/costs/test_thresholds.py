"""Where speculation starts to gain from batches, and where it starts to gain at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.costs.break_even import Asked, break_even, growth_threshold
from magicdec.profiles.costs.catalog import find_hardware, find_model, list_models
from magicdec.profiles.costs.speculation import Drafting, step_costs

LLAMA = find_model("Llama-3.1-8B")


@pytest.fixture
def a100():
    return Asked(LLAMA, find_hardware("8xA100"), Drafting(512), gamma=2)


def test_the_ideal_threshold_is_the_published_formula(ideal):
    """Without overheads S* = K + 2·P·BW / (F·κ), when attention costs no arithmetic."""
    device = replace(ideal.device, bandwidth=2e12, flops=3e14)
    hardware = replace(ideal, device=device)
    # As q grows to many, 2·P·q per row stays the whole difference between verifying and decoding.
    for gamma in (1, 4, 16):
        found = growth_threshold(Asked(LLAMA, hardware, Drafting(512), gamma))
        formula = 512 + 2 * LLAMA.streamed * 2e12 / (3e14 * LLAMA.kv_bytes_per_token(2))
        assert found == pytest.approx(formula, rel=0.12)  # attention is arithmetic as well


def test_the_slopes_change_sign_at_the_growth_threshold(a100):
    threshold = growth_threshold(a100)
    for factor, grows in ((0.9, False), (1.1, True)):
        c = a100.slopes(threshold * factor)
        assert (a100.gamma * (c.plain - c.draft) > c.verify - c.plain) is grows


def test_speedup_is_one_at_the_break_even_length(a100):
    omega = 2.5
    context = break_even(a100, omega)
    costs = step_costs(LLAMA, a100.hardware, a100.drafting, rows=1e9, context=context, gamma=2)
    assert costs.speedup(2, omega) == pytest.approx(1, abs=1e-3)


def test_speedup_grows_with_the_batch_only_in_long_contexts(a100):
    """MagicDec, section 3: beyond the inflection length more rows mean more speedup."""
    rows = np.array([32, 64, 128, 256, 512])
    by_rows = {
        context: step_costs(
            LLAMA, a100.hardware, a100.drafting, rows=rows, context=context, gamma=2
        ).speedup(2, 2.5)
        for context in (1000, 32_000, 100_000)
    }
    assert (np.diff(by_rows[1000]) < 0).all()
    assert (np.diff(by_rows[32_000]) > 0).all()
    assert (np.diff(by_rows[100_000]) > 0).all()
    assert 1000 < growth_threshold(a100) < 32_000


@settings(deadline=None)
@given(st.sampled_from(list_models()), st.sampled_from(["8xA100", "8xH100", "L40", "2x4090"]),
       st.integers(1, 8), st.floats(0.3, 0.99), st.sampled_from([64, 512, 4096]))  # fmt: skip
def test_growth_comes_first_and_perfect_drafts_meet_it(model, machine, gamma, alpha, budget):
    asked = Asked(model, find_hardware(machine), Drafting(budget), gamma)
    growth = growth_threshold(asked)
    assert growth is not None and growth > budget  # drafts that read everything save nothing
    even = break_even(asked, AcceptanceRates((alpha,)).tokens_per_step(gamma))
    assert even is None or even >= growth - 1
    assert break_even(asked, gamma + 1) == pytest.approx(growth, abs=1)


def test_grouped_query_heads_raise_it_and_faster_arithmetic_lowers_it(a100):
    grouped = growth_threshold(a100)
    ungrouped = growth_threshold(replace(a100, target=replace(LLAMA, kv_heads=32)))
    device = a100.hardware.device
    faster = replace(a100.hardware, device=replace(device, flops=3 * device.flops))
    assert ungrouped < grouped
    assert growth_threshold(replace(a100, hardware=faster)) < grouped


def test_no_threshold(a100):
    full = replace(a100, drafting=Drafting(None))
    assert growth_threshold(full) is None
    assert break_even(full, 2.9) is None
    assert break_even(a100, 1.0) is None  # nothing is ever accepted


def test_free_drafts_gain_from_the_start(ideal):
    """A draft model of next to nothing on hardware whose arithmetic is free."""
    hardware = replace(ideal, device=replace(ideal.device, flops=1e30))
    tiny = replace(LLAMA, layers=1, hidden=1, intermediate=1, heads=1, kv_heads=1, vocab=1)
    asked = Asked(LLAMA, hardware, Drafting(1, model=tiny), gamma=1)
    assert growth_threshold(asked) <= 1
