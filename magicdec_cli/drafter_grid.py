"""The drafters that grids of settings name, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from magicdec.engine.config import LOOKUP, SELF, DecodeConfig
from magicdec.engine.errors import ConfigError, PluginError
from magicdec.profiles.storage.drafter import NO_TREE, kind_of

if TYPE_CHECKING:
    from magicdec.engine.selectors.base import KVSelector
    from magicdec.profiles.survey.drafter import Drafter


def drafters(
    selectors: Sequence[str], budgets: Sequence[int], options: Mapping[str, object],
    drafts: Sequence[str] = (SELF,), kept: Sequence[str] = ("selected",),
    trees: Sequence[tuple[str, int | None]] = ((NO_TREE, None),), left_out: list[str] | None = None,
) -> list[Drafter]:  # fmt: skip
    """Every draft with every selector and budget, as far as it has use for them: lookup has for
    neither, and what sees the whole cache has no budget.

    kept: values of `draft_kv`; trees: kinds with their most nodes, which only the model itself and
    its first layers draft. left_out: gets a line for each combination that cannot be. An option is
    for those selectors that have it. Raises ConfigError for one that none has, for a bad value, for
    a budget that a selector cannot work with, and where no combination can be. A selector that
    fails in other ways is listed: whoever runs it says so.
    """
    from magicdec.engine.selection import chosen_once
    from magicdec.profiles.survey.drafter import Drafter

    found: dict[tuple[object, ...], Drafter] = {}
    impossible: dict[str, None] = {}

    def add(drafter: Drafter) -> None:
        kind = kind_of(drafter.draft)
        once = drafter.selector is None or chosen_once(drafter.selector)
        if kind == "cascade" and not once:
            impossible[f"cascade {drafter.draft} over {drafter.selector}"] = None
            return
        for tree, nodes in trees if kind in ("self", "layers") else [(NO_TREE, None)]:
            if tree != NO_TREE and not once:
                impossible[f"tree {tree} over {drafter.selector}"] = None
                continue
            grown = replace(drafter, tree=tree, tree_nodes=None if tree == NO_TREE else nodes)
            key = (grown.draft, grown.draft_kv, grown.selector, grown.budget, tree)
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
                if selector is not None and selector.whole:
                    add(Drafter(name, None, own, draft=draft, draft_kv="full"))
                    continue
                for budget in budgets:
                    with suppress(PluginError):
                        _ = None if selector is None else selector.ring(budget)
                    add(Drafter(name, budget, own, draft=draft))
    lines = [f"{what}, which chooses entries again and again" for what in impossible]
    if not found:
        raise ConfigError(f"nothing to draft with: {lines[0]}; give snapkv or another selector")
    if left_out is not None:
        left_out += lines
    return list(found.values())


def _selectors(
    names: Sequence[str], options: Mapping[str, object]
) -> dict[str, tuple[KVSelector | None, dict[str, object]]]:
    """Each made with those of the options that it has; None for one that fails in that."""
    from magicdec.engine.plugins import option_fields
    from magicdec.engine.selection import SELECTORS

    known = {name: {field.name for field in option_fields(SELECTORS.load(name))} for name in names}
    for option in options:
        if not any(option in own for own in known.values()):
            raise ConfigError(f"no option {option!r} in {', '.join(names)}")
    found: dict[str, tuple[KVSelector | None, dict[str, object]]] = {}
    for name in names:
        own = {key: value for key, value in options.items() if key in known[name]}
        found[name] = None, own
        with suppress(PluginError):
            found[name] = SELECTORS.create(name, own), own
    return found
