"""What a run says about the runs to come."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from magicdec.profiles.costs.step_times import NOT_MEASURED, Seen
from magicdec.profiles.tuning.candidate import Candidate, Objective, Place
from magicdec.profiles.tuning.correcting import corrected, factors, next_to_run
from magicdec.profiles.tuning.pricing import Memory, Option, plain_option, price

HERE = Place(4, 4000)
took = partial(replace, NOT_MEASURED)


def option(made: Any, budget: int, gamma: int, steps: float, **machine: float) -> Option:
    who = Candidate(made.drafter(budget), gamma)
    return price(who, HERE, made.evidence(gamma, [steps] * 4), made.Machine(**machine), made.ROOMY)


def test_a_run_as_predicted_changes_nothing(made: Any) -> None:
    one = option(made, 256, 2, 30, draft=0.2, verify=1.1, rest=0.1, select=1.0)
    same = factors([(one, took(plain=1.0, draft=0.2, verify=1.1))])
    assert corrected(one, same) == one


def test_measured_steps_replace_the_predicted_ones(made: Any) -> None:
    one = option(made, 256, 2, 30, draft=0.2, verify=1.0, select=1.0)
    plain = plain_option(HERE, made.evidence(1, [60] * 4), made.Machine(), made.ROOMY)
    found = factors([(plain, took(plain=2.0)), (one, took(draft=0.3, verify=1.4))])
    now = corrected(one, found)
    assert now.seconds == pytest.approx(30 * (2 * 0.3 + 1.4) + 4 * 1.0)
    assert now.plain_seconds == pytest.approx(60 * 2.0)
    assert corrected(plain, found).speedup == pytest.approx(1.0)
    assert now.tpot == pytest.approx(one.tpot * now.seconds / one.seconds)


def test_drafts_with_other_weights_keep_their_own_factor(made: Any) -> None:
    one = option(made, 256, 1, 40, draft=0.2)
    other = replace(one, candidate=Candidate(made.drafter(256, weights="int8"), 1))
    found = factors([(one, took(draft=0.4)), (other, took(draft=0.1))])
    assert corrected(one, found).price.draft == pytest.approx(0.4)
    assert corrected(other, found).price.draft == pytest.approx(0.1)


def test_a_longer_draft_is_tried_once_drafting_turns_out_cheap(made: Any) -> None:
    """Predicted dear, γ 1 is first; measured cheap, γ 4 promises more than γ 2."""
    pool = [
        option(made, 256, 1, 34, draft=0.5), option(made, 128, 2, 31, draft=0.5),
        option(made, 128, 4, 22, draft=0.5),
    ]  # fmt: skip
    first = next_to_run(pool, [], Objective())
    assert first is not None and first.candidate.gamma == 1
    after_dear = next_to_run(pool, [(first, took(draft=0.5, verify=1.0))], Objective())
    after_cheap = next_to_run(pool, [(first, took(draft=0.05, verify=1.0))], Objective())
    assert after_dear is not None and after_dear.candidate.gamma == 2
    assert after_cheap is not None and after_cheap.candidate.gamma == 4


def test_no_drafter_runs_thrice_and_nothing_runs_twice(made: Any) -> None:
    pool = [option(made, 256, gamma, 20 + gamma) for gamma in (1, 2, 3)]
    pool += [option(made, 128, 1, 50)]
    seen: list[tuple[Option, Seen]] = []
    while (one := next_to_run(pool, seen, Objective())) is not None:
        seen.append((one, took()))
    budgets = [o.candidate.drafter.budget for o, _ in seen if o.candidate.drafter]
    assert budgets == [256, 256, 128]
    assert len({o.candidate for o, _ in seen}) == 3


def test_neither_plain_decoding_nor_what_does_not_fit_is_chosen(made: Any) -> None:
    plain = plain_option(HERE, made.evidence(1, [60] * 4), made.Machine(), made.ROOMY)
    large = replace(option(made, 256, 1, 30), memory=Memory(3, 2))
    assert next_to_run([plain, large], [], Objective()) is None


def test_what_keeps_the_limit_goes_first(made: Any) -> None:
    quick, slow = option(made, 128, 1, 50), option(made, 256, 2, 25)
    slow = replace(slow, tpot=9.0)
    assert next_to_run([quick, slow], [], Objective()) is slow
    assert next_to_run([quick, slow], [], Objective(max_tpot=5.0)) is quick
