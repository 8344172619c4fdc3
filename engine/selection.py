"""The selectors by name, and the one that drafts under given settings.

No torch, so that settings can be refused at once.
"""

from __future__ import annotations

from dataclasses import replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import FULL, DraftSpec
from magicdec.engine.errors import PluginError, require
from magicdec.engine.plugins.guard import guarded
from magicdec.engine.plugins.registry import Registry, is_ours
from magicdec.engine.selectors.base import DynamicSelector, KVSelector

SELECTORS: Registry[KVSelector] = Registry(
    KVSelector,  # type: ignore[type-abstract]
    package="magicdec.engine.selectors",
    group="magicdec.selectors",
    guard=guarded,
)


def chosen_once(name: str) -> bool:
    """Whether the selector of that name chooses a row's entries once. Raises ConfigError where
    there is none."""
    return not issubclass(SELECTORS.load(name), DynamicSelector)


def selector_of(spec: DraftSpec) -> KVSelector:
    """What chooses the KV entries that it reads; lookup reads none. Raises ConfigError."""
    return SELECTORS.create(spec.selector or FULL, dict(spec.selector_options))


def measured_as(spec: DraftSpec, temperature: float, weights: str) -> DraftSpec:
    """As profiles name it: with the options that were given as its selector understood them, if it
    can be made. weights: those that did draft."""
    try:
        selector = selector_of(spec)
    except PluginError:
        pairs = sorted(spec.selector_options)
    else:
        pairs = [(name, getattr(selector, name)) for name, _ in sorted(spec.selector_options)]
    options = tuple(
        (name, v if v is None or isinstance(v, str | int | float) else str(v)) for name, v in pairs
    )
    return replace(spec, selector_options=options, temperature=temperature, draft_weights=weights)


def draft_selector(config: DecodeConfig) -> KVSelector:
    """What chooses the draft's KV entries. Raises ConfigError."""
    if config.draft_kv == FULL:
        return SELECTORS.create(FULL)
    selector = SELECTORS.create(config.selector, config.selector_options)
    once = config.drafts_trees or config.who.cascades
    require(
        not (isinstance(selector, DynamicSelector) and once),
        f"{'trees' if config.drafts_trees else 'cascades'} are drafted over entries chosen once, "
        f"and selector {config.selector} chooses again; give snapkv or another one",
    )
    return selector


def watched_selector(config: DecodeConfig) -> str | None:
    """The name of a stranger's selector that is shown the live keys again and again; None where
    nobody is. Raises ConfigError."""
    if not config.reads_cache:
        return None
    kind = type(draft_selector(config))
    shown = issubclass(kind, DynamicSelector) and not is_ours(kind)
    return kind.__name__ if shown else None
