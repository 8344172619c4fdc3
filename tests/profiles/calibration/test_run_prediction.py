"""Predictions of whole runs, by hand where a hand can count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.predict.run import Seconds, Work, assume, error_terms, predict_run

SNAPKV = DraftSpec("snapkv", (), 256, 0.0, "int8")
WORK = Work(4, (4000,) * 4, (65,) * 4, 3, SNAPKV)
WHOLE = replace(WORK, drafter=replace(SNAPKV, draft_kv="full"))
SURE, NEVER = AcceptanceRates((1.0,), ""), AcceptanceRates((0.0,), "")


def test_steps_are_counted_as_a_run_takes_them(calibration):
    made = calibration()
    sure, never = predict_run(made, WORK, SURE), predict_run(made, WORK, NEVER)
    assert sure.steps == 64 / 4 and never.steps == 64
    assert sure.plain_steps == never.plain_steps == 64
    assert sure.plain == pytest.approx(never.plain)
    assert sure.speedup > 1 > never.speedup
    one = predict_run(made, replace(WORK, new_tokens=(2,) * 4), SURE)
    assert one.steps == 1 and one.draft == 0, "a row's last token is not drafted for"


def test_rows_that_wait_take_their_turn(calibration):
    made = calibration()
    queued = replace(WORK, batch=2)
    assert predict_run(made, queued, NEVER).steps == 128
    assert predict_run(made, queued, SURE).plain_steps == 128
    # The same tokens two rows at a time read the weights twice as often.
    assert predict_run(made, queued, SURE).plain > predict_run(made, WORK, SURE).plain


def test_selection_is_paid_once_a_row(calibration):
    made = calibration()
    found = predict_run(made, WORK, SURE)
    assert found.select == pytest.approx(4 * made.selection("snapkv").seconds(4000), rel=0.02)
    assert predict_run(made, WHOLE, SURE).select == 0
    longer = predict_run(made, replace(WORK, new_tokens=(257,) * 4), SURE)
    assert longer.speedup > found.speedup


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(low=st.floats(0, 1), high=st.floats(0, 1), gamma=st.integers(1, 6))
def test_more_acceptance_is_never_slower(calibration, low, high, gamma):
    made = calibration()
    low, high = sorted((low, high))
    work = replace(WORK, gamma=gamma, new_tokens=(33,) * 4)
    slow, fast = (predict_run(made, work, AcceptanceRates((rate,), "")) for rate in (low, high))
    assert fast.speculative <= slow.speculative * (1 + 1e-9)


def test_what_is_assumed_says_where_it_comes_from(calibration):
    made = calibration()
    known = assume(made, replace(WORK, drafter=replace(SNAPKV, budget=300)))
    assert known.rates == (0.9, 0.8, 0.7) and "snapkv 256" in known.source
    assert known.padded(5) == (0.9, 0.8, 0.7, 0.7, 0.7) and known.padded(2) == (0.9, 0.8)
    assert (
        "assumed"
        in assume(made, replace(WORK, drafter=replace(SNAPKV, selector="streaming"))).source
    )
    assert assume(made, WHOLE).rates == (1.0,)


def test_the_largest_part_of_an_error_is_named():
    before = Seconds(10.0, 0.5, 1.0, 4.0, 0.1, 20, 60, 3.5)
    slow_verify = replace(before, verify=5.0)
    (first, *_) = error_terms(before, before, slow_verify)
    assert first.name == "verify" and first.percent == pytest.approx(100 * 1.0 / 6.6)
    assert first.sentence == "mostly verify: 250.0 ms a step measured, 200.0 predicted"
    own = replace(before, draft=1.3, verify=5.2, steps=26, gain=2.7)
    (first, *_) = error_terms(before, own, own)
    assert first.name == "acceptance"
    assert first.sentence == "mostly acceptance: 2.70 tokens a step, 3.50 expected"
    quick_plain = replace(before, plain=8.0)
    (first, *_) = error_terms(before, before, quick_plain)
    assert first.name == "plain" and first.percent == pytest.approx(25)
    without = replace(before, plain=0.0, plain_steps=0)
    assert "plain" not in [term.name for term in error_terms(before, before, without)]
