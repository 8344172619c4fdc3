"""From settings to the selector that drafts. No torch, so that settings can be refused at once."""

from __future__ import annotations

from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import require
from magicdec.engine.selectors.base import SELECTORS, DynamicSelector, KVSelector


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
