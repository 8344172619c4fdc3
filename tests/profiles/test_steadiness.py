"""A disturbed comparison is told from a quiet one by its steps' times; all clocks are faked."""

from __future__ import annotations

import random
from collections import namedtuple
from collections.abc import Callable

import pytest

from magicdec.engine.events import PhaseTimes, RowStep, StepFinished
from magicdec.profiles.machine.other_programs import OthersLoad, with_parent
from magicdec.profiles.machine.steadiness import Steadiness, Turns

Slow = Callable[[bool, int], float]  # (speculative, turn) to how many times slower


@pytest.fixture(autouse=True)
def thresholds(idle_machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the product: these tests bring machines of their own."""
    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_SCATTER", 1.25)
    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 0.1)


def step(rows: int, gamma: int, seconds: float) -> StepFinished:
    shares = tuple(RowStep(row, (1,), "a", gamma, 0) for row in range(rows))
    return StepFinished(0, gamma, shares, PhaseTimes(draft=gamma * 0.01, verify=seconds))


def measured(
    slow: Slow = lambda *_: 1.0, others: float | None = 0.01, turns: int = 6
) -> Steadiness:
    """Plain steps of .1 s that grow by .2% each, and fall to half when two of four rows end;
    speculative ones of .15 s: noise of 2% on all."""
    found, dice = Turns(), random.Random(3)
    for turn in range(turns):
        for speculative, count in ((False, 10), (True, 4)):
            for i in range(count):
                at = turn * count + i
                rows = 4 if turn < turns - 2 else 2
                usual = (0.15 if speculative else 0.1) * (1 + 0.002 * at) * rows / 4
                noise = dice.gauss(1, 0.02)
                seconds = usual * noise * slow(speculative, turn)
                found.add(speculative, step(rows, 3 if speculative else 0, seconds))
    return found.result(others)


def test_a_quiet_run_has_a_narrow_range_and_no_warning() -> None:
    quiet = measured()
    assert quiet.turns == 6 and quiet.warning is None
    assert quiet.plain_scatter is not None and quiet.plain_scatter < 1.1
    assert quiet.speculative_scatter is not None and quiet.speculative_scatter < 1.1
    spread = quiet.speedups(1.5)
    assert spread is not None
    low, high = spread
    assert 1.4 < low < 1.5 < high < 1.6


def test_a_program_that_starts_in_the_middle_widens_the_range_and_is_named() -> None:
    late = measured(lambda speculative, turn: 2.5 if turn == 2 and not speculative else 1.0, 0.31)
    spread = late.speedups(1.5)
    assert spread is not None and spread[1] > 2 * spread[0]
    warning = late.warning
    assert warning is not None and "plain steps took" in warning and "verify passes" not in warning
    assert "other programs took 31% of the CPUs" in warning and "\n" not in warning


def test_what_slows_both_alike_leaves_the_ratio_but_not_the_silence() -> None:
    both = measured(lambda speculative, turn: 3.0 if turn in (1, 2) else 1.0, None)
    spread = both.speedups(1.5)
    assert spread is not None and spread[1] < 1.25 * spread[0]
    assert both.warning is not None and "verify passes took" in both.warning
    assert "other programs" not in both.warning, "nothing is known of them"


def test_a_load_from_the_first_step_to_the_last_is_said_too() -> None:
    steady = measured(lambda *_: 2.0, 0.5)
    assert steady.plain_scatter is not None and steady.plain_scatter < 1.25
    assert steady.warning is not None and "50% of the CPUs" in steady.warning


def test_one_slow_step_is_no_disturbance() -> None:
    found = Turns()
    for i in range(40):
        found.add(False, step(4, 0, 0.19 if i == 7 else 0.1))
    assert found.result(0.0).warning is None


def test_too_little_to_judge_by_is_not_judged() -> None:
    few = Turns()
    for speculative in (False, True):
        for _ in range(3):
            few.add(speculative, step(4, 3 if speculative else 0, 0.1))
    result = few.result(0.0)
    assert (result.plain_scatter, result.speculative_scatter) == (None, None)
    assert result.speedups(1.5) is None and result.warning is None
    assert Turns().result(None).turns == 0


def test_one_pass_after_the_other_has_no_range() -> None:
    assert measured(turns=1).speedups(1.5) is None


def test_the_record_holds_it_with_its_bounds() -> None:
    record = measured(lambda *_: 1.0, 0.4).to_json()
    assert record["disturbed"] is True and record["others"] == 0.4
    assert record["quiet_scatter"] == 1.25 and record["quiet_others"] == 0.1
    assert len(record["paces"]) == 6


Machine = namedtuple("Machine", "user nice system idle iowait steal guest guest_nice")
Own = namedtuple("Own", "user system")


def test_others_are_what_is_busy_and_not_ours() -> None:
    machine = iter([Machine(100, 5, 10, 500, 1, 0, 50, 0), Machine(103, 6, 11, 504, 2, 1, 53, 0)])
    own = iter([Own(20, 1), Own(22, 1.5)])
    load = OthersLoad(lambda: next(machine), lambda: next(own))
    # busy: 3 user (guests are in it), 1 nice, 1 system, 1 stolen; 2.5 of it ours; 5 at rest
    assert load.share == pytest.approx((6 - 2.5) / 11)


def test_a_clock_that_stands_still_knows_nothing_of_others() -> None:
    still = Machine(100, 5, 10, 500, 1, 0, 50, 0)
    assert OthersLoad(lambda: still, lambda: Own(20, 1)).share is None


def test_too_little_time_says_nothing_of_others() -> None:
    """The system counts in hundredths of a second."""
    machine = iter([Machine(100, 0, 0, 500, 0, 0, 0, 0), Machine(100.1, 0, 0, 500.3, 0, 0, 0, 0)])
    assert OthersLoad(lambda: next(machine), lambda: Own(20, 1)).share is None


def test_what_the_process_that_started_this_one_takes_is_no_other_programs() -> None:
    """The app that redraws its screen beside its engine."""
    import os

    import psutil

    mine, parent = psutil.Process(), psutil.Process(os.getppid())
    before = [process.cpu_times() for process in (mine, parent)]
    found = with_parent()()
    after = [process.cpu_times() for process in (mine, parent)]
    assert sum(t.user for t in before) <= found.user <= sum(t.user for t in after)
    assert sum(t.system for t in before) <= found.system <= sum(t.system for t in after)


def test_the_systems_own_figures_can_be_read() -> None:
    share = OthersLoad().share
    assert share is None or 0.0 <= share <= 1.0
