"""What chooses a draft's KV entries. No torch, so that what cannot be is refused in no time."""

from __future__ import annotations

from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import require
from magicdec.engine.selectors.base import SELECTORS, KVSelector, chosen_once


def draft_selector(config: DecodeConfig) -> KVSelector:
    """Raises ConfigError for an unknown one, and for one that trees or cascades cannot use."""
    if config.draft_kv == "full":
        return SELECTORS.create("full")
    require(
        not (config.drafts_trees or config.inner) or chosen_once(config.selector),
        f"{'trees' if config.drafts_trees else 'cascades'} are drafted over entries chosen once, "
        f"and selector {config.selector} chooses again; give snapkv or another one",
    )
    return SELECTORS.create(config.selector, config.selector_options)
