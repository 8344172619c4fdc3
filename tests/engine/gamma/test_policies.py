"""What a policy answers, from situations made by hand."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.auto import PROBES, TRIES, Auto
from magicdec.engine.gamma.history import FRESH, History
from magicdec.engine.gamma.policy import FIXED, Adaptive, Entry, Schedule, Situation


@dataclasses.dataclass
class Prices:
    """Seconds: plain 1, a draft token `draft`, verifying `verify`; `prepare` a row."""

    draft: float = 0.2
    verify: float = 1.1
    prepare_s: float = 0.0

    def step(self, rows: int, context: float, gamma: int) -> float:
        return gamma * self.draft + self.verify if gamma else 1.0

    def prepare(self, context: float) -> float:
        return self.prepare_s


def situation(history: History | None = None, **changes) -> Situation:
    now = Situation(most=8, rows=4, context=1000.0, left=100.0, history=history or History())
    return dataclasses.replace(now, **changes)


def seen(rate: float, steps: int = 200, gamma: int = 8) -> History:
    """A run in which every draft is accepted up to the same position: length rate · γ."""
    history = History()
    for _ in range(steps):
        history.add(gamma, [gamma], [round(rate * gamma)], 1.0)
    return history


def test_fixed_and_adaptive_take_what_there_is_room_for():
    assert FIXED.gamma(situation()) == Adaptive(0.3).gamma(situation()) == 8
    assert FIXED.stop is None and Adaptive(0.3).stop == 0.3


@pytest.mark.parametrize("stop", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_adaptive_needs_a_chance(stop):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        Adaptive(stop)


SCHEDULE = Schedule((Entry(2, 1000, 1), Entry(2, 4000, 3), Entry(8, 2000, 2), Entry(8, 9000, 5)))


@pytest.mark.parametrize(
    "rows,context,gamma",
    [(2, 1000, 1), (2, 3999.5, 1), (2, 4000, 3), (7, 10**6, 3), (8, 2000, 2), (99, 9000, 5),
     (1, 1000, 1), (2, 10, 1), (8, 10, 2)],
)  # fmt: skip
def test_a_schedule_holds_from_its_entries_on(rows, context, gamma):
    assert SCHEDULE.gamma(situation(rows=rows, context=context)) == gamma
    assert SCHEDULE.most == 5


def test_a_schedule_is_bounded_by_the_room_and_says_each_place_once():
    assert SCHEDULE.gamma(situation(rows=99, context=9000, most=4)) == 4
    with pytest.raises(ConfigError, match=r"two entries for batch and context \(1, 5\)"):
        Schedule((Entry(1, 5, 1), Entry(1, 5, 2)))
    with pytest.raises(ConfigError, match="one entry or more"):
        Schedule(())


@given(
    draft=st.floats(0.01, 2), verify=st.floats(0.5, 4), rate=st.floats(0.0, 1.0),
    prepare=st.floats(0, 200), left=st.floats(1, 1000), unprepared=st.integers(0, 4),
)  # fmt: skip
def test_auto_decodes_what_is_left_soonest(draft, verify, rate, prepare, left, unprepared):
    prices = Prices(draft, verify, prepare)
    got = Auto(prices, rate).gamma(situation(left=left, unprepared=unprepared))

    def seconds(gamma: int) -> float:
        omega = sum(rate**i for i in range(gamma + 1))
        return left / omega * prices.step(4, 0, gamma) + (gamma > 0) * unprepared * prepare

    assert seconds(got) <= min(map(seconds, range(9))) * (1 + 1e-9)


def test_auto_learns_from_the_run():
    prices = Prices(0.2, 1.1)
    assert Auto(prices, 0.9).gamma(situation()) > 3
    assert Auto(prices, 0.9).gamma(situation(seen(0.0))) == 0
    assert Auto(prices, 0.1).gamma(situation(seen(1.0))) == 8
    assert 1 <= Auto(prices, 0.9).gamma(situation(seen(0.5))) <= 5


def test_auto_does_not_select_for_the_last_tokens():
    prices = Prices(prepare_s=5.0)
    assert Auto(prices, 0.9).gamma(situation(left=10, unprepared=4)) == 0
    assert Auto(prices, 0.9).gamma(situation(left=10, unprepared=0)) > 0


def run_alone(auto: Auto, step, steps: int, most: int = 8, rate: float = 1.0) -> list[int]:
    history, chosen = History(), []
    for _ in range(steps):
        gamma = auto.gamma(situation(history, most=most))
        chosen.append(gamma)
        history.add(gamma, [gamma] * 4, [round(rate * gamma)] * 4, step(gamma))
    return chosen


def test_auto_without_prices_times_steps_first_and_then_chooses():
    chosen = run_alone(Auto(), lambda g: 1.0 + 0.1 * g, 30)
    probing = TRIES * len(PROBES)
    assert chosen[:probing] == [gamma for gamma in PROBES for _ in range(TRIES)]
    assert set(chosen[probing:]) == {8}, "a free draft that is always right"
    dear = run_alone(Auto(), lambda g: 1.0 + 2.0 * g, 30, rate=0.5)
    assert set(dear[probing:]) == {0}


def test_auto_without_prices_tries_again_now_and_then():
    chosen = run_alone(Auto(), lambda g: 1.0 + 2.0 * g, 3 * FRESH, rate=0.5)
    later = chosen[TRIES * len(PROBES) :]
    assert 0 < sum(g > 0 for g in later) <= 0.1 * len(later)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_auto_without_prices_stays_within_its_room(most):
    assert set(run_alone(Auto(), lambda g: 1.0 + 0.1 * g, 20, most=most)) <= set(range(most + 1))


def test_history_counts_only_what_was_judged():
    """Tokens drafted after a rejection say nothing, and must bear on nothing."""
    a, b = History(), History()
    a.add(3, [3], [1], 1.0)
    b.add(8, [8], [1], 1.0)
    assert a.rates(0.5, 8) == b.rates(0.5, 8)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=50), st.floats(0, 1))
def test_rates_are_rates(steps, first):
    history = History()
    for most, accepted in steps:
        history.add(most, [most], [min(most, accepted)], 1.0)
    assert all(0 <= rate <= 1 for rate in history.rates(first, 8))


def test_times_are_kept_by_about_how_many_rows_and_get_old():
    history = History()
    history.add(0, [0] * 5, [0] * 5, 2.0)
    history.add(0, [0] * 4, [0] * 4, 1.0)
    assert history.seconds(6, 0) == 1.0 and history.tries(7, 0) == 2
    assert history.seconds(8, 0) is None and history.seconds(6, 1) is None
    for _ in range(FRESH):
        history.add(1, [1], [0], 1.0)
    assert history.seconds(6, 0) is None
