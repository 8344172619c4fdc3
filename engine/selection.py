"""The selectors by name, and the one that drafts under given settings.

No torch, so that settings can be refused at once.
"""

from __future__ import annotations

from magicdec.engine.config import LOOKUP, DecodeConfig
from magicdec.engine.errors import require
from magicdec.engine.plugins import Registry, is_ours
from magicdec.engine.selectors.base import DynamicSelector, KVSelector
from magicdec.engine.strangers import guarded

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


def draft_selector(config: DecodeConfig) -> KVSelector:
    """What chooses the draft's KV entries. Raises ConfigError."""
    if config.draft_kv == "full":
        return SELECTORS.create("full")
    selector = SELECTORS.create(config.selector, config.selector_options)
    require(
        not (isinstance(selector, DynamicSelector) and (config.drafts_trees or config.inner)),
        f"{'trees' if config.drafts_trees else 'cascades'} are drafted over entries chosen once, "
        f"and selector {config.selector} chooses again; give snapkv or another one",
    )
    return selector


def watched_selector(config: DecodeConfig) -> str | None:
    """The name of a stranger's selector that is shown the live keys again and again; None where
    nobody is. Raises ConfigError."""
    if config.gamma == 0 or config.draft == LOOKUP:
        return None
    kind = type(draft_selector(config))
    shown = issubclass(kind, DynamicSelector) and not is_ours(kind)
    return kind.__name__ if shown else None
