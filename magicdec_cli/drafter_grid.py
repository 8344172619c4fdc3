"""The drafters that grids of settings name, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magicdec.engine.config import LOOKUP, SELF, DecodeConfig
from magicdec.engine.errors import ConfigError
from magicdec.profiles.storage.drafter import NO_TREE, kind_of

if TYPE_CHECKING:
    from magicdec.engine.selectors.base import KVSelector
    from magicdec.profiles.survey.surveying import Drafter


def drafters(
    selectors: Sequence[str], budgets: Sequence[int], options: Mapping[str, object],
    drafts: Sequence[str] = (SELF,), kept: Sequence[str] = ("selected",),
    trees: Sequence[tuple[str, int | None]] = ((NO_TREE, None),),
) -> list[Drafter]:  # fmt: skip
    """Every draft with every selector and budget, as far as it has use for them: lookup has for
    neither, and what sees the whole cache has no budget.

    kept: values of `draft_kv`; trees: kinds with their most nodes, which only the model itself and
    its first layers draft. An option is for those selectors that have it. Raises ConfigError
    for one that none has, for a bad value and for a budget that a selector cannot work with.
    """
    from magicdec.profiles.survey.surveying import Drafter

    found: dict[tuple[object, ...], Drafter] = {}

    def add(drafter: Drafter) -> None:
        itself = kind_of(drafter.draft) in ("self", "layers")
        for kind, nodes in trees if itself else [(NO_TREE, None)]:
            grown = replace(drafter, tree=kind, tree_nodes=None if kind == NO_TREE else nodes)
            key = (grown.draft, grown.draft_kv, grown.selector, grown.budget, kind)
            found.setdefault((*key, grown.tree_nodes), grown)

    of_selectors = _selectors(selectors, options)
    for draft in drafts:
        DecodeConfig(draft=draft)  # refuses what is none
        if draft == LOOKUP:
            add(Drafter(None, None, draft=draft, draft_kv=None))
            continue
        for kind in kept:
            if kind == "full":
                add(Drafter("full", None, draft=draft, draft_kv=kind))
                continue
            for name, (selector, own) in of_selectors.items():
                if selector.whole:
                    add(Drafter(name, None, own, draft=draft, draft_kv="full"))
                    continue
                for budget in budgets:
                    selector.ring(budget)
                    add(Drafter(name, budget, own, draft=draft))
    return list(found.values())


def _selectors(
    names: Sequence[str], options: Mapping[str, object]
) -> dict[str, tuple[KVSelector, dict[str, object]]]:
    """Each made with those of the options that it has."""
    from magicdec.engine.plugins import option_fields
    from magicdec.engine.selectors.base import SELECTORS

    known = {name: {field.name for field in option_fields(SELECTORS.load(name))} for name in names}
    for option in options:
        if not any(option in own for own in known.values()):
            raise ConfigError(f"no option {option!r} in {', '.join(names)}")
    found = {}
    for name in names:
        own = {key: value for key, value in options.items() if key in known[name]}
        found[name] = SELECTORS.create(name, own), own
    return found
