"""The drafters that grids of settings name, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from magicdec.engine.draft_spec import FULL, LOOKUP, NO_TREE, SELF, DraftSpec, who_is
from magicdec.engine.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from magicdec.engine.selectors.base import KVSelector


def drafters(
    selectors: Sequence[str], budgets: Sequence[int], options: Mapping[str, object],
    drafts: Sequence[str] = (SELF,), kept: Sequence[str] = ("selected",),
    trees: Sequence[tuple[str, int | None]] = ((NO_TREE, None),), left_out: list[str] | None = None,
) -> list[DraftSpec]:  # fmt: skip
    """Every draft with every selector and budget, as far as it has use for them: lookup has for
    neither, and what sees the whole cache has no budget.

    kept: values of `draft_kv`; trees: kinds with their most nodes, which only the model itself and
    its first layers draft. left_out: gets a line for each combination that cannot be. An option is
    for those selectors that have it. Raises ConfigError for one that none has, for a bad value, for
    a budget that a selector cannot work with, and where no combination can be. A selector that
    fails in other ways is listed: whoever runs it says so.
    """
    from magicdec.engine.selection import chosen_once

    found: dict[tuple[object, ...], DraftSpec] = {}
    impossible: dict[str, None] = {}

    def add(drafter: DraftSpec) -> None:
        once = drafter.selector is None or chosen_once(drafter.selector)
        if drafter.who.cascades and not once:
            impossible[f"cascade {drafter.draft} over {drafter.selector}"] = None
            return
        for tree, nodes in trees if drafter.kind in ("self", "layers") else [(NO_TREE, None)]:
            if tree != NO_TREE and not once:
                impossible[f"tree {tree} over {drafter.selector}"] = None
                continue
            grown = replace(drafter, tree=tree, tree_nodes=nodes, draft_weights="auto")
            found.setdefault(grown.order, grown)

    of_selectors = _selectors(selectors, options)
    for draft in drafts:
        who_is(draft).check()
        if draft == LOOKUP:
            add(DraftSpec(None, draft=draft))
            continue
        for kind in kept:
            if kind == FULL:
                add(DraftSpec(FULL, draft=draft))
                continue
            for name, (selector, own) in of_selectors.items():
                if selector is not None and selector.whole:
                    add(DraftSpec(FULL, draft=draft))
                    continue
                for budget in budgets:
                    with suppress(PluginError):
                        _ = None if selector is None else selector.ring(budget)
                    add(DraftSpec(name, tuple(own.items()), budget, draft=draft))
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
