"""The numbers of a reason and of the map are those of the runs, where there are runs."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from magicdec.cli.tune.page import speedup_map
from magicdec.engine.events import PhaseTimes
from magicdec.profiles.recorded.schema import Sample
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Objective, Place
from magicdec.profiles.tuning.pricing import Option, plain_option, price
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.ranking import Measured
from magicdec.profiles.tuning.recommend import as_ran, reason, recommend, rounds_text

HERE = Place(4, 4000)


def sample(steps: int, **phases: float) -> Sample:
    times = PhaseTimes(**phases)
    return Sample(240, times.decode, steps, times)


PLAIN_RUN = sample(60, verify=60.0)


@pytest.fixture
def option(made: Any) -> Option:
    """γ 3, Ω 3."""
    known = made.evidence(3, [20.0] * 4)
    return price(Candidate(made.drafter(), 3), HERE, known, made.Machine(), made.ROOMY)


def runs(option: Option, *rounds: Sample) -> Measured:
    plain = (PLAIN_RUN,) * len(rounds)
    return Measured(HERE, option.candidate, rounds, (0.1,) * len(rounds), plain)


def test_the_reason_of_a_run_is_its_own(option: Option) -> None:
    """24 steps in place of 60, of 0.9 + 1.0 + 0.1 plain steps: 60 / 48."""
    mine = runs(option, sample(24, draft=21.6, verify=24.0, other=2.4))
    said = " ".join(reason(as_ran(option, mine), option.length))
    assert "takes 0.30 of a plain step, a verify pass 1.00, the rest of a step 0.10" in said
    needs, gets = map(
        float, re.findall(r"needs ([\d.]+) tokens per step and gets ([\d.]+)", said)[0]
    )
    assert gets / needs == pytest.approx(mine.speedup) == pytest.approx(1.25)
    assert "(Ω 3.00, while all rows are decoded)" in said
    assert f"instead of {mine.speedup:.2f}×" in said


def test_selection_between_steps_is_apart_and_that_within_them_is_drafting(option: Option) -> None:
    mine = runs(option, sample(20, select=12.0, draft=12.0, verify=20.0))
    once, again = as_ran(option, mine), as_ran(option, mine, selecting=0.6)
    assert once.selection_s == pytest.approx(12) and once.price.draft == pytest.approx(0.2)
    assert again.selection_s == pytest.approx(0) and again.price.draft == pytest.approx(0.4)
    assert once.speedup == again.speedup == mine.speedup


def test_rounds_that_agree_are_one_number() -> None:
    assert rounds_text([0.47, 0.471]) == "0.47×"
    assert rounds_text([0.12, 0.99, 0.55]) == "0.55× (0.12 to 0.99)"


def answer(made: Any, option: Option, measured: list[Measured], tried: list[Option]) -> Answer:
    plain = plain_option(HERE, made.evidence(1, [60.0] * 4), made.Machine(), made.ROOMY)
    ran = SimpleNamespace(
        place=HERE, tried=tried, variants=[], seen=lambda: [], cells=lambda: [],
        measured=lambda: measured,
    )  # fmt: skip
    found: Any = ran
    return Answer(4000, 4, [plain, option], [found], [option])


def test_plain_decoding_alone_measures_nothing(made: Any, option: Option) -> None:
    plain = Measured(HERE, PLAIN, (PLAIN_RUN,), (0.25,), (PLAIN_RUN,))
    found = recommend(answer(made, option, [plain], []), Objective())
    assert found is not None and found.measured is None and found.candidate == option.candidate


def test_the_maps_own_cell_is_the_headlines(made: Any, option: Option) -> None:
    plain = Measured(HERE, PLAIN, (PLAIN_RUN,), (0.25,), (PLAIN_RUN,))
    mine = runs(option, sample(24, draft=21.6, verify=24.0, other=2.4))
    known = answer(made, option, [plain, mine], [option])
    found = recommend(known, Objective())
    assert found is not None and found.speedup == pytest.approx(1.25) != option.speedup
    asked = SimpleNamespace(batches=(4,), contexts=(4000,), objective=Objective())
    outcome: Any = SimpleNamespace(answers=[known], recommendations=[found], question=asked)
    drawn = speedup_map(outcome)
    assert drawn is not None and drawn[0].speedup[0, 0] == pytest.approx(1.25)
    assert drawn[1].startswith("where it would pay, best draft of each place")
