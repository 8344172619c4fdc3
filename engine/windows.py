"""Whether rows reach beyond the tokens that their model, or its draft model, was trained for."""

from __future__ import annotations

from magicdec.engine.config import DecodeConfig
from magicdec.engine.memory.plan import DraftRoom
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.selection import draft_selector


def beyond_window(model: str, spec: ModelSpec, length: int) -> list[str]:
    """A warning for a row of `length`, prompt and new tokens."""
    if length <= spec.trained_window:
        return []
    return [
        f"context {length:,} (prompt and new tokens) is beyond the {spec.trained_window:,} tokens "
        f"that {model} was trained for: expect the text to degrade, and with it what acceptance "
        "and speedup say about useful text"
    ]


def beyond_draft_window(spec: ModelSpec | None, config: DecodeConfig, longest: int) -> list[str]:
    """A warning for a prompt of which another model that drafts sees only the end."""
    if spec is None:
        return []
    seen = DraftRoom.of(spec, draft_selector(config), config, rows=1, context=longest).prompt
    if seen == longest:
        return []
    return [
        f"draft {config.who.model} was trained for {spec.trained_window:,} tokens: of a prompt of "
        f"{longest:,} it sees the last {seen:,}"
    ]
