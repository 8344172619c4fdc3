"""What a candidate is predicted to take, and the reason, on machines made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.profiles.tuning.candidate import Candidate, Evidence, Place
from magicdec.profiles.tuning.pricing import Memory, plain_option, price, schedule, stretched
from magicdec.profiles.tuning.recommend import deciding, idealised, memory_reason, reason

counts = st.lists(st.floats(0, 100), min_size=1, max_size=12)


def test_rows_of_one_length_end_together() -> None:
    run = schedule([10, 10, 10], [1.0, 1.5, 2.0], slots=3)
    assert run.seconds == pytest.approx(20)
    assert run.rows == pytest.approx((20, 20, 20))


def test_a_slower_row_ends_alone_at_the_price_of_one() -> None:
    run = schedule([10, 14], [1.0, 3.0], slots=2)
    assert run.seconds == pytest.approx(10 * 3 + 4 * 1)
    assert run.rows == pytest.approx((30, 34))


def test_waiting_rows_take_the_slot_that_is_free_first() -> None:
    run = schedule([4, 10, 6], [1.0, 1.0], slots=2)
    assert run.seconds == pytest.approx(10)  # the third runs from 4 to 10
    assert run.rows == pytest.approx((4, 10, 6))


@given(counts, st.integers(1, 6))
def test_a_schedule_wastes_nothing_and_skips_nothing(steps: list[float], slots: int) -> None:
    seconds = schedule(steps, [1.0] * slots, slots).seconds
    least = max(sum(steps) / slots, max(steps))
    assert least - 1e-6 <= seconds <= sum(steps) / slots + max(steps) + 1e-6


@given(counts, st.integers(1, 20))
def test_stretched_rows_are_like_the_given_ones(values: list[float], rows: int) -> None:
    found = stretched(values, rows)
    assert len(found) == rows
    assert min(values) - 1e-9 <= found.min() and found.max() <= max(values) + 1e-9


def test_price_of_a_step_and_of_a_run(made: Any) -> None:
    # γ 3: 3 × 0.2 + 1.1 + 0.1 = 1.8 a step, 20 steps for 60 tokens, after two selections of 2.
    machine = made.Machine(plain=1.0, draft=0.2, verify=1.1, rest=0.1, select=2.0)
    found = made.evidence(3, [20, 20])
    option = price(Candidate(made.drafter(), 3), Place(2, 4000), found, machine, made.ROOMY)
    assert option.plain_seconds == pytest.approx(60)
    assert option.seconds == pytest.approx(20 * 1.8 + 2 * 2)
    assert option.speedup == pytest.approx(60 / 40)
    assert option.tokens_per_s == pytest.approx(120 / 40)
    assert option.tpot == pytest.approx(40 / 60)
    assert option.price.needed(3) == pytest.approx(1.8)


def test_plain_decoding_is_its_own_measure(made: Any) -> None:
    option = plain_option(
        Place(4, 1000), made.evidence(3, [20, 30]), made.Machine(plain=0.5), made.ROOMY
    )
    assert option.speedup == 1.0
    assert option.seconds == pytest.approx(30)
    assert option.tokens == 4 * 60  # two rows stand for four
    assert option.tpot == pytest.approx(0.5)


def test_an_interval_of_acceptance_is_one_of_the_speedup(made: Any) -> None:
    known = Evidence(1, (60, 60), (40, 40), 1.5, (1.2, 1.8))
    option = price(
        Candidate(made.drafter(), 1), Place(2, 100), known, made.Machine(draft=0.0), made.ROOMY
    )
    assert option.range == pytest.approx((1.2, 1.8))
    assert option.speedup == pytest.approx(1.5)


@given(
    st.integers(1, 8), st.floats(0.05, 2), st.floats(0.5, 3), st.floats(0, 0.5), st.floats(0, 3),
    st.lists(st.floats(10, 60), min_size=1, max_size=5), st.integers(1, 6),
)  # fmt: skip
def test_an_ideal_term_never_makes_it_slower(
    made: Any, gamma: int, draft: float, verify: float, rest: float, select: float,
    steps: list[float], batch: int,
) -> None:  # fmt: skip
    machine = made.Machine(1.0, draft, verify, rest, select)
    found = made.evidence(gamma, [max(count, 60 / (gamma + 1)) for count in steps])
    option = price(Candidate(made.drafter(), gamma), Place(batch, 100), found, machine, made.ROOMY)
    better = idealised(option)
    assert min(better.values()) >= option.speedup * (1 - 1e-9)
    assert better[deciding(option)] == max(better.values())


@pytest.mark.parametrize(
    ("machine", "steps", "term"),
    [
        (dict(draft=0.01, verify=1.0), 55, "acceptance"),
        (dict(draft=0.9, verify=1.0), 15.5, "draft"),
        (dict(draft=0.01, verify=3.0), 15.5, "verify"),
        (dict(draft=0.01, verify=1.0, select=40), 15.5, "selection"),
        (dict(draft=0.01, verify=1.0, rest=2.0), 15.5, "the rest of a step"),
    ],
)
def test_the_reason_names_the_term_that_decides(
    made: Any, machine: dict[str, float], steps: float, term: str
) -> None:
    prices, found = made.Machine(**machine), made.evidence(3, [steps])
    option = price(Candidate(made.drafter(), 3), Place(1, 4000), found, prices, made.ROOMY)
    assert deciding(option) == term
    assert f"What limits it most is {term}:" in " ".join(reason(option))


def test_the_reason_sets_the_tokens_needed_beside_those_gained(made: Any) -> None:
    option = price(
        Candidate(made.drafter(), 3), Place(1, 4000), Evidence(3, (60,), (20,), 3.0, (2.5, 3.5)),
        made.Machine(draft=0.2, verify=1.25), made.ROOMY,
    )  # fmt: skip
    said = reason(option)[0]
    assert "γ 3 needs 1.85 tokens per step and gets 3.00 (95% 2.50 to 3.50)" in said
    assert said.startswith("A draft step takes 0.20 of a plain step, a verify pass 1.25:")


def test_what_does_not_fit_is_told_with_its_size(made: Any) -> None:
    fits = plain_option(Place(4, 1000), made.evidence(1, [60]), made.Machine(), made.ROOMY)
    large = replace(fits, memory=Memory(7_000_000_000, 6_000_000_000))
    assert memory_reason([], 2) == []
    (said,) = memory_reason([large], 2)
    assert "1 of 2 do not fit" in said and "7.0 GB at B 4" in said and "6.0 GB may be used" in said
    assert "none fits" in memory_reason([large], 1)[0]
