"""What `magicdec tune` is to measure on top of the candidates that it can predict."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magicdec.engine.draft_spec import NO_TREE, SELF, DraftSpec, who_is
from magicdec.engine.errors import require

if TYPE_CHECKING:
    from magicdec.profiles.tuning.variants import Change


def surveyed(drafts: Sequence[str]) -> tuple[str, ...]:
    """Those that are predicted: without cascades, and with self where a cascade builds on it."""
    own = [draft for draft in drafts if not who_is(draft).cascades]
    if len(own) < len(drafts) and SELF not in own:
        own.insert(0, SELF)
    return tuple(own)


def changes(
    drafts: Sequence[str], trees: Sequence[str], nodes: Sequence[int], policies: Sequence[str]
) -> tuple[Change, ...]:
    """The others. Raises ConfigError for what is none."""
    from magicdec.profiles.gamma_names import most_of
    from magicdec.profiles.tuning.variants import Cascade, Policy, Tree

    cascades = [draft for draft in drafts if who_is(draft).cascades]
    for draft in cascades:
        who_is(draft).check()
    most = {name: most_of(name) for name in policies}
    for name, tokens in most.items():
        require(tokens > 0, f"--gamma {name} never drafts; plain decoding is always tried")
    grown = itertools.product((kind for kind in trees if kind != NO_TREE), nodes)
    return (
        *map(Cascade, cascades),
        *(Tree(kind, count) for kind, count in grown),
        *(Policy(name, tokens) for name, tokens in most.items()),
    )


def check_changes(found: Sequence[Change], ways: Sequence[DraftSpec], verify: int) -> None:
    """Raises ConfigError for a change that none of the drafters takes, and for any that is not to
    be measured."""
    for change in found:
        require(any(map(change.takes, ways)), f"{change.flag} {change.needs}")
        require(
            verify > 0,
            f"{change.flag} is measured, not predicted, and --verify 0 makes no real runs; leave "
            "one of them out",
        )
