"""The times of a step as numbers and as arrays, and what measured steps change in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.costs.step_times import NOT_MEASURED, StepTimes, factors

TIMES = StepTimes(plain=1.0, draft=0.2, verify=1.1, select=0.3, rest=0.1)


def test_a_step_is_its_drafts_its_verify_pass_and_the_rest_or_else_a_plain_one():
    assert TIMES.step(3) == pytest.approx(3 * 0.2 + 1.1 + 0.3 + 0.1)
    assert TIMES.step(0) == 1.0
    assert TIMES.needed(3) == pytest.approx(2.1)
    assert TIMES.speedup(3, 4.2) == pytest.approx(2.0)


def test_cells_of_a_grid_are_what_each_is_by_itself(model, ideal):
    drafting = Drafting(10, select_per_token=0.5, verify_per_token=0.25)

    def costs(rows, gamma):
        return step_costs(model, ideal, drafting, rows=rows, context=100, gamma=gamma)

    rows, gammas = np.array([[1], [2], [7]]), np.array([[1, 4]])
    grid = costs(rows, gammas)
    alone = [costs(b, g).cells() for b in rows.ravel() for g in gammas.ravel()]
    for cell, [other] in zip(grid.cells(), alone, strict=True):
        assert cell.parts == pytest.approx(other.parts)
    steps = [cell.step(g) for cell, g in zip(grid.cells(), [1, 4] * 3, strict=True)]
    assert grid.step(gammas).ravel() == pytest.approx(steps)


def test_what_was_measured_corrects_its_like_and_what_was_not_is_off_as_plain_steps_are():
    took = replace(NOT_MEASURED, plain=2.0, draft=0.1)
    found = factors([("self int8", TIMES, took)])
    now = found.corrected(TIMES, "self int8")
    assert (now.plain, now.draft, now.verify) == pytest.approx((2.0, 0.1, 2.2))
    assert (now.select, now.rest) == (TIMES.select, TIMES.rest)
    assert found.corrected(TIMES, "others").draft == pytest.approx(0.1)
    alone = factors([("lookup", TIMES, took)], apart=("lookup",))
    assert alone.corrected(TIMES, "others").draft == pytest.approx(0.4)
