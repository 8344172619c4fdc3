"""Who wins, by prediction and by measurement."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicdec.engine.events import PhaseTimes
from magicdec.profiles.recorded.schema import Sample
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Objective, Place
from magicdec.profiles.tuning.pricing import Memory, Option, plain_option, price
from magicdec.profiles.tuning.ranking import (
    TIE,
    Measured,
    fitting,
    predicted_differ,
    rank,
    unsteady,
    verdict,
)

HERE = Place(4, 4000)
THROUGHPUT, TPOT = Objective(), Objective("tpot")


def options(
    made: Any, steps: dict[tuple[int, int], Sequence[float]], machine: Any, place: Place = HERE
) -> list[Option]:
    """Plain decoding and one option per (budget, γ) with its rows' steps."""
    some = made.evidence(1, [60, 60, 60, 60])
    found = [plain_option(place, some, machine, made.ROOMY)]
    for (budget, gamma), rows in steps.items():
        who = Candidate(made.drafter(budget), gamma)
        found.append(price(who, place, made.evidence(gamma, rows), machine, made.ROOMY))
    return found


def test_the_fastest_wins(made: Any) -> None:
    found = options(
        made, {(128, 2): [30, 31, 30, 31], (256, 3): [22, 21, 22, 21]}, made.Machine(draft=0.1)
    )  # fmt: skip
    ranking = rank(found, THROUGHPUT, predicted_differ)
    assert ranking.winner is not None and ranking.winner.candidate.gamma == 3
    assert [o.candidate.gamma for o in ranking.ordered] == [3, 2, 0]


def test_of_equals_the_smaller_budget_and_then_the_shorter_draft_wins(made: Any) -> None:
    same = [22.0, 25.0, 21.0, 24.0]
    noise = [22.2, 24.8, 21.1, 23.8]  # a little better, and not by every row
    machine = made.Machine(draft=0.1)
    found = options(made, {(512, 3): noise, (256, 3): same, (256, 4): same}, machine)
    longer = {o.candidate.gamma: o for o in found if o.candidate.drafter}
    assert longer[4].seconds > longer[3].seconds
    ranking = rank(found, THROUGHPUT, predicted_differ)
    assert ranking.ordered[0].candidate.drafter == made.drafter(512)
    assert ranking.winner is not None
    assert ranking.winner.candidate == Candidate(made.drafter(256), 3)


def test_a_lead_of_every_row_is_no_chance_however_small(made: Any) -> None:
    machine = made.Machine(draft=0.1)
    rows = [22.0, 25.0, 21.0, 24.0]
    found = options(made, {(512, 3): [r * 0.99 for r in rows], (256, 3): rows}, machine)
    winner = rank(found, THROUGHPUT, predicted_differ).winner
    assert winner is not None and winner.candidate.drafter == made.drafter(512)


def test_plain_decoding_wins_where_drafts_do_not_pay(made: Any) -> None:
    found = options(made, {(128, 1): [50] * 4, (256, 2): [45] * 4}, made.Machine(draft=0.5))
    winner = rank(found, THROUGHPUT, predicted_differ).winner
    assert winner is not None and winner.candidate is PLAIN


def test_a_tpot_limit_shuts_out_the_large_batch(made: Any) -> None:
    small, large = Place(1, 4000), Place(8, 4000)
    quick, slow = made.Machine(0.01, 0.001, 0.01), made.Machine(0.03, 0.003, 0.03)
    steps = {(128, 2): [30] * 4}
    both = [*options(made, steps, quick, small), *options(made, steps, slow, large)]
    free = rank(both, THROUGHPUT, predicted_differ).winner
    held = rank(both, Objective(max_tpot=0.010), predicted_differ).winner
    assert free is not None and free.place == large
    assert held is not None and held.place == small and held.tpot <= 0.010


def test_an_impossible_limit_has_no_winner_and_names_the_nearest(made: Any) -> None:
    found = options(made, {(128, 2): [30] * 4}, made.Machine(draft=0.1))
    ranking = rank(found, Objective(max_tpot=1e-6), predicted_differ)
    assert ranking.winner is None and ranking.as_good == ()
    assert ranking.nearest.candidate.gamma == 2
    assert ranking.nearest.tpot == min(option.tpot for option in found)


ROWS = st.lists(st.floats(12, 60), min_size=4, max_size=4)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from([64, 128, 256]), st.integers(1, 4)), ROWS, max_size=6
    ),
    st.floats(0.05, 1.5), st.floats(0.8, 2.5), st.sampled_from(["throughput", "tpot"]),
    st.none() | st.floats(0.2, 2),
)  # fmt: skip
def test_nobody_beats_the_winner_by_more_than_a_tie(
    made: Any, steps: dict[tuple[int, int], list[float]], draft: float, verify: float,
    goal: Any, limit: float | None,
) -> None:  # fmt: skip
    objective = Objective(goal, limit)
    found = options(made, steps, made.Machine(draft=draft, verify=verify))
    ranking = rank(found, objective, predicted_differ)
    assert sorted(map(id, ranking.ordered)) == sorted(map(id, found))
    allowed = [option for option in found if objective.allows(option)]
    if ranking.winner is None:
        assert not allowed
        return
    best = max(objective.value(option) for option in allowed)
    assert objective.allows(ranking.winner)
    assert objective.value(ranking.winner) >= best * (1 - TIE) * (1 - 1e-12)
    # Whoever is faster costs more.
    for option in allowed:
        if objective.value(option) > objective.value(ranking.winner):
            assert option.candidate.thrift > ranking.winner.candidate.thrift


def test_one_row_proves_no_tie(made: Any) -> None:
    a, b = (
        price(
            Candidate(made.drafter(), gamma), HERE, made.evidence(gamma, [30]), made.Machine(),
            made.ROOMY,
        )
        for gamma in (1, 2)
    )  # fmt: skip
    assert predicted_differ(a, b)


def test_memory_parts_the_options(made: Any) -> None:
    some, machine = made.evidence(1, [60]), made.Machine()
    small = plain_option(HERE, some, machine, Memory(5, 5))
    large = plain_option(HERE, some, machine, Memory(6, 5))
    assert fitting([small, large]) == ([small], [large])


def measured(made: Any, seconds: dict[int, list[float]], tokens: int = 100) -> list[Measured]:
    """Rounds by γ; 0 is plain decoding."""

    def samples(gamma: int) -> tuple[Sample, ...]:
        return tuple(Sample(tokens, s, 10, PhaseTimes()) for s in seconds[gamma])

    return [
        Measured(
            HERE, Candidate(made.drafter(), gamma) if gamma else PLAIN, samples(gamma),
            tuple(s * 4 / tokens for s in rounds), samples(0),
        )
        for gamma, rounds in seconds.items()
    ]  # fmt: skip


def winner_of(found: list[Measured], objective: Objective = THROUGHPUT) -> int | None:
    winner = verdict(found, objective).winner
    return None if winner is None else winner.candidate.gamma


def test_the_measured_best_wins_whatever_was_predicted(made: Any) -> None:
    found = measured(made, {0: [10, 10.2], 2: [7, 7.1], 3: [8, 8.1]})
    assert winner_of(found) == 2
    best = verdict(found, THROUGHPUT).winner
    assert best is not None
    assert best.speedups == pytest.approx((10 / 7, 10.2 / 7.1))
    assert best.speedup == pytest.approx((10 / 7 + 10.2 / 7.1) / 2)


def test_a_gain_in_only_one_round_is_noise(made: Any) -> None:
    assert winner_of(measured(made, {0: [10, 10], 2: [9, 10.1]})) == 0


def test_a_slowed_machine_does_not_hide_a_gain_of_every_round(made: Any) -> None:
    """Rounds are compared with the plain run beside them, not with that of another minute."""
    assert winner_of(measured(made, {0: [10, 20], 2: [8, 16]})) == 2


def test_one_disturbed_round_of_many_decides_nothing(made: Any) -> None:
    assert winner_of(measured(made, {0: [10, 10, 10, 10], 2: [8, 40, 8.1, 8]})) == 2
    assert winner_of(measured(made, {0: [10, 60, 10, 10], 2: [11, 11, 11, 11]})) == 0
    assert winner_of(measured(made, {0: [10, 10, 10, 10], 2: [8, 40, 8, 11]})) == 0


def test_a_disturbed_round_makes_nobody_as_good_as_the_best(made: Any) -> None:
    found = measured(made, {0: [10, 10, 10, 10], 2: [8, 40, 8.1, 8]})
    assert [one.candidate.gamma for one in verdict(found, THROUGHPUT).as_good] == [2]


def test_rounds_that_differ_are_noticed(made: Any) -> None:
    assert not unsteady(measured(made, {0: [10, 10.5], 2: [8, 8.4]}))
    assert unsteady(measured(made, {0: [10, 50], 2: [8, 8.4]}))
    assert not unsteady(measured(made, {0: [10], 2: [8]}))


def test_of_measured_equals_the_shorter_draft_wins(made: Any) -> None:
    found = measured(made, {0: [10, 10], 2: [8.05, 8.0], 3: [7.9, 8.02]})
    assert winner_of(found) == 2
    assert [one.candidate.gamma for one in verdict(found, THROUGHPUT).as_good] == [3, 2]


def test_a_measured_limit_binds_whatever_was_predicted(made: Any) -> None:
    found = measured(made, {0: [10, 10], 2: [8, 8]})
    assert winner_of(found, Objective(max_tpot=0.33)) == 2
    assert winner_of(found, Objective(max_tpot=0.3)) is None
    assert verdict(found, Objective(max_tpot=0.3)).nearest.candidate.gamma == 2


SECONDS = st.lists(st.floats(1, 20), min_size=2, max_size=3)


@given(st.integers(2, 3).flatmap(
    lambda rounds: st.dictionaries(
        st.integers(1, 5), st.lists(st.floats(1, 20), min_size=rounds, max_size=rounds), max_size=4
    ).flatmap(
        lambda drafts: st.lists(st.floats(1, 20), min_size=rounds, max_size=rounds).map(
            lambda plain: {0: plain, **drafts}
        )
    )
))  # fmt: skip
def test_a_measured_winner_beat_plain_decoding_in_every_round(
    made: SimpleNamespace, seconds: dict[int, list[float]]
) -> None:
    gamma = winner_of(measured(made, seconds))
    assert gamma is not None
    if gamma:
        pairs = zip(seconds[gamma], seconds[0], strict=True)
        assert all(mine < plain for mine, plain in pairs)
