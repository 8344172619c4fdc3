"""Ways to draft that the cost model does not price, so that only real runs can judge them.

A cascade drafts what the self-draft does, only sooner; a tree drafts more for the same positions; a
policy drafts as far as it sees fit. Each changes a candidate that is priced, and is tried on top of
the best one that it can be combined with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from magicdec.engine.draft_spec import LOOKUP, SELF, DraftSpec
from magicdec.engine.selection import chosen_once
from magicdec.profiles.costs.step_times import Factors
from magicdec.profiles.files.gamma_names import policy_of
from magicdec.profiles.tuning.candidate import Candidate, Objective, Place, Rated
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.pricing import Memory, Option
from magicdec.profiles.tuning.ranking import Measured, fitting

GB = 1e9
MEASURED_ONLY = "cascades, trees and γ that changes are measured, not predicted"


class Change(Protocol):
    """What a variant changes of the candidate that it builds on."""

    @property
    def flag(self) -> str:
        """As it was asked for."""

    @property
    def needs(self) -> str:
        """What it can be combined with, after its flag in a message."""

    def takes(self, way: DraftSpec) -> bool:
        """Whether it can be combined with that."""

    def over(self, candidate: Candidate) -> Candidate: ...


@dataclass(frozen=True, slots=True)
class Cascade:
    """`draft`: lookup+self or layers:N+self. Its acceptance is the self-draft's."""

    draft: str

    @property
    def flag(self) -> str:
        return f"--draft {self.draft}"

    @property
    def needs(self) -> str:
        return (
            "drafts over entries chosen once, and every selector asked for chooses again; "
            "add snapkv or another one to --selector"
        )

    def takes(self, way: DraftSpec) -> bool:
        return way.draft == SELF and _chosen_once(way)

    def over(self, candidate: Candidate) -> Candidate:
        return _changed(candidate, draft=self.draft)


@dataclass(frozen=True, slots=True)
class Tree:
    """Of at most so many nodes, as deep as the candidate's γ."""

    kind: str
    nodes: int

    @property
    def flag(self) -> str:
        return f"--tree {self.kind} --tree-nodes {self.nodes}"

    @property
    def needs(self) -> str:
        return (
            "is drafted by self or layers:N over entries chosen once; add self to --draft, or "
            "snapkv or another one that chooses once to --selector"
        )

    def takes(self, way: DraftSpec) -> bool:
        return way.kind in ("self", "layers") and _chosen_once(way)

    def over(self, candidate: Candidate) -> Candidate:
        return _changed(candidate, tree=self.kind, tree_nodes=self.nodes)


@dataclass(frozen=True, slots=True)
class Policy:
    """auto, adaptive or a schedule's file, which drafts at most so many tokens."""

    name: str
    most: int

    @property
    def flag(self) -> str:
        return f"--gamma {self.name}"

    @property
    def needs(self) -> str:
        return "ends a draft by its probabilities, and lookup has none; add self to --draft"

    def takes(self, way: DraftSpec) -> bool:
        return way.draft != LOOKUP or policy_of(self.name).stop is None

    def over(self, candidate: Candidate) -> Candidate:
        return replace(_changed(candidate, gamma_policy=self.name), gamma=self.most)


def _chosen_once(way: DraftSpec) -> bool:
    return way.selector is not None and chosen_once(way.selector)


def _changed(candidate: Candidate, **members: Any) -> Candidate:
    assert candidate.drafter is not None, "plain decoding drafts nothing"
    return replace(candidate, drafter=replace(candidate.drafter, **members))


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of an option, to be run at its place."""

    base: Option
    candidate: Candidate
    memory: Memory

    @property
    def place(self) -> Place:
        return self.base.place


def variant_of(
    change: Change, pool: Sequence[Option], ran: Sequence[Measured], now: Factors,
    objective: Objective, memory: Callable[[Candidate], Memory],
) -> Variant | str:  # fmt: skip
    """The change over the best option of the pool; or what there is not to be tried, and why."""
    base = best_base(change, pool, ran, now, objective)
    if base is None:
        return f"{change.flag}, because what it could build on is left out itself"
    candidate = change.over(base.candidate)
    needed = memory(candidate)
    if needed.fits:
        return Variant(base, candidate, needed)
    return (
        f"{candidate.label}, because it needs {needed.needed / GB:.1f} GB of memory and "
        f"{needed.usable / GB:.1f} GB may be used"
    )


def best_base(
    change: Change, pool: Sequence[Option], ran: Sequence[Measured], now: Factors,
    objective: Objective,
) -> Option | None:  # fmt: skip
    """Of the options that fit in memory and take the change: the best of those that ran, else the
    one that promises most at the step times of the runs. None when there is none."""
    able = [
        option for option in fitting(pool)[0]
        if option.candidate.drafter is not None and change.takes(option.candidate.drafter)
    ]  # fmt: skip
    rated: dict[Candidate, Rated] = {one.candidate: one for one in ran}
    tried = [option for option in able if option.candidate in rated]

    def worth(option: Option) -> tuple[bool, float]:
        found = rated.get(option.candidate) or corrected(option, now)
        return objective.allows(found), objective.value(found)

    return max(tried or able, key=worth, default=None)
