"""Which candidate a variant builds on, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.events import PhaseTimes
from magicdec.profiles.costs.step_times import Factors
from magicdec.profiles.recorded.schema import Sample
from magicdec.profiles.tuning.candidate import Candidate, Objective, Place
from magicdec.profiles.tuning.pricing import Memory, Option, plain_option, price
from magicdec.profiles.tuning.ranking import Measured
from magicdec.profiles.tuning.recommend import measured_reason
from magicdec.profiles.tuning.variants import (
    Cascade,
    Change,
    Policy,
    Tree,
    Variant,
    best_base,
    variant_of,
)

HERE = Place(4, 4000)
CASCADE, TREE = Cascade("lookup+self"), Tree("specexec", 12)
ADAPTIVE, AUTO = Policy("adaptive", 8), Policy("auto", 8)
LOOKUP = DraftSpec(None, draft="lookup")


def option(made: Any, who: DraftSpec, gamma: int, steps: float) -> Option:
    known = made.evidence(gamma, [steps] * 4)
    return price(Candidate(who, gamma), HERE, known, made.Machine(), made.ROOMY)


def measured(option: Option, seconds: float) -> Measured:
    sample, plain = (Sample(100, s, 10, PhaseTimes()) for s in (seconds, 10.0))
    return Measured(HERE, option.candidate, (sample,), (option.tpot,), (plain,))


@pytest.fixture
def pool(made: Any) -> list[Option]:
    """Lookup is best, then Quest, an early exit, and two static self-drafts."""
    drafters = [
        (LOOKUP, 4, 12), (made.drafter(selector="quest"), 3, 14),
        (replace(made.drafter(), draft="layers:4"), 2, 17), (made.drafter(128), 3, 18),
        (made.drafter(256), 5, 20),
    ]  # fmt: skip
    some = made.evidence(1, [60] * 4)
    found = [option(made, who, gamma, steps) for who, gamma, steps in drafters]
    return [plain_option(HERE, some, made.Machine(), made.ROOMY), *found]


@pytest.mark.parametrize(
    ("change", "way"),
    [
        (CASCADE, "snapkv 128"), (TREE, "layers:4 snapkv 256"), (ADAPTIVE, "quest 256"),
        (AUTO, "lookup"),
    ],
    ids=lambda value: getattr(value, "flag", value),
)  # fmt: skip
def test_each_builds_on_the_best_that_it_can_be_combined_with(
    pool: list[Option], change: Change, way: str
) -> None:
    base = best_base(change, pool, [], Factors(), Objective())
    assert base is not None and base.candidate.drafter is not None
    assert base.candidate.drafter.way == way


def test_what_ran_counts_more_than_what_was_predicted(pool: list[Option]) -> None:
    *_, small, large = pool
    ran = [measured(small, 9.0), measured(large, 7.0)]
    assert best_base(CASCADE, pool, ran, Factors(), Objective()) is large
    assert best_base(CASCADE, pool, ran[:1], Factors(), Objective()) is small
    held = Objective(max_tpot=small.tpot)
    assert large.tpot > small.tpot and best_base(CASCADE, pool, ran, Factors(), held) is small


def made_of(pool: list[Option], change: Change, needed: int = 1) -> Variant | str:
    memory = Memory(needed, 6_000_000_000)
    return variant_of(change, pool, [], Factors(), Objective(), lambda candidate: memory)


def test_a_cascade_is_the_self_draft_but_for_who_drafts(pool: list[Option]) -> None:
    found = made_of(pool, CASCADE)
    assert isinstance(found, Variant) and found.base is pool[4] and found.place == HERE
    base, own = found.base.candidate, found.candidate
    assert base.drafter is not None and own.gamma == base.gamma
    assert own.drafter == replace(base.drafter, draft="lookup+self")
    assert base.thrift < own.thrift, "of equals the simpler way wins"


def test_a_tree_is_as_deep_as_the_draft_was_long(pool: list[Option]) -> None:
    found = made_of(pool, TREE)
    assert isinstance(found, Variant) and found.candidate.gamma == found.base.candidate.gamma == 2
    assert found.candidate.label == "layers:4 snapkv 256 specexec 12, γ 2"
    assert found.base.candidate.thrift < found.candidate.thrift


def test_a_policy_drafts_at_most_what_it_may(pool: list[Option]) -> None:
    found = made_of(pool, ADAPTIVE)
    assert isinstance(found, Variant) and found.candidate.gamma == 8
    assert found.candidate.label == "quest 256, γ adaptive up to 8"
    assert found.base.candidate.thrift < found.candidate.thrift


def test_what_cannot_be_tried_is_named_with_the_reason(pool: list[Option]) -> None:
    said = made_of(pool, TREE, 7_000_000_000)
    assert said == (
        "layers:4 snapkv 256 specexec 12, γ 2, because it needs 7.0 GB of memory and 6.0 GB may be "
        "used"
    )
    large = [replace(one, memory=Memory(3, 2)) for one in pool]
    assert str(made_of(large, TREE)).startswith("--tree specexec --tree-nodes 12, because")


def test_a_schedule_is_no_policy_that_needs_probabilities(
    pool: list[Option], tmp_path: Any
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('schema = "magicdec.gamma/1"\n[[gamma]]\nbatch = 1\ncontext = 1\ngamma = 4\n')
    found = made_of(pool, Policy(str(plan), 4))
    assert isinstance(found, Variant)
    assert found.candidate.label == "lookup, γ plan.toml up to 4"


def test_its_reason_is_what_its_runs_showed(pool: list[Option]) -> None:
    small = pool[4]
    fast = Sample(300, 15.0, 10, PhaseTimes())
    plain = Sample(100, 10.0, 10, PhaseTimes())
    mine = Measured(HERE, Candidate(LOOKUP, 3), (fast,), (0.1,), (plain,))
    step, base = measured_reason(mine, measured(small, 8.0))
    assert "takes 1.50 of a plain step and gives 3.00 times its tokens" in step
    assert mine.speedup == pytest.approx(3.00 / 1.50)
    assert base == "What it builds on, snapkv 128, γ 3, reached 1.25×."
    assert "is predicted to reach" in measured_reason(mine, small)[1]
