"""How far ahead a sweep drafts: numbers, and policies with the most that they draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.cli.grids import Grids
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import LOOKUP, NO_TREE, DraftSpec
from magicdec.engine.errors import ConfigError, require
from magicdec.engine.gamma.policy import FIXED
from magicdec.profiles.gamma_names import most_of, policy_of


@dataclass(frozen=True, slots=True)
class Ahead:
    """A γ; or a policy, by the name that --gamma gives it, with the most that it drafts."""

    gamma: int
    policy: str = FIXED.name

    def config(self, drafter: DraftSpec, base: DecodeConfig) -> DecodeConfig:
        """`base`, drafted by that drafter so far ahead."""
        return base.drafted_by(drafter, self.gamma, policy_of(self.policy))

    def misfit(self, drafter: DraftSpec) -> str:
        """Why the drafter cannot draft so far ahead; empty where it can."""
        if self.policy == FIXED.name:
            return ""
        if drafter.tree != NO_TREE:
            return f"γ {self.policy} with tree {drafter.tree}, which is as deep in every step"
        if drafter.draft == LOOKUP and policy_of(self.policy).stop is not None:
            return f"γ {self.policy} with lookup, which has no probabilities"
        return ""


def gammas(grids: Grids) -> tuple[Ahead, ...]:
    """Those of --gamma, or of the setting. Raises ConfigError for one that drafts nothing, and for
    a file that is no schedule."""
    own = Ahead(grids.settings.gamma, grids.settings.gamma_policy)
    given = grids.given.get("gamma")
    found = (own,) if given is None else tuple(map(_ahead, given))
    for ahead in found:
        require(
            ahead.gamma > 0,
            "gamma 0 is plain decoding, which every cell is compared with; leave it out"
            if ahead.policy == FIXED.name
            else f"--gamma {ahead.policy} never drafts, and every cell is compared with plain "
            "decoding; leave it out",
        )
    return found


def _ahead(value: int | str) -> Ahead:
    return Ahead(value) if isinstance(value, int) else Ahead(most_of(value), value)


def ways(
    drafters: Sequence[DraftSpec], aheads: Sequence[Ahead], left_out: list[str]
) -> list[tuple[DraftSpec, Ahead]]:
    """Every drafter with every γ. left_out: gets a line for each combination that cannot be. Raises
    ConfigError where none can."""
    found, impossible = [], dict[str, None]()
    for drafter in drafters:
        for ahead in aheads:
            if why := ahead.misfit(drafter):
                impossible[why] = None
            else:
                found.append((drafter, ahead))
    if not found:
        raise ConfigError(f"no cells of {next(iter(impossible))}; give --gamma a number, too")
    left_out += impossible
    return found
