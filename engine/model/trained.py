"""For how many tokens a model was trained, or its RoPE scaled. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def scaled_window(max_position: int, rope: Mapping[str, Any]) -> int:
    """Tokens, by `max_position_embeddings` and transformers' `rope_parameters`.

    The conventions are transformers'. YaRN's factor counts from the window before it; whether
    `max_position_embeddings` is that one or the whole is left to the file, and no factor makes it
    smaller. Llama 3's is the whole wherever it is another one: 131,072 of 8,192 by a factor of 8
    or 32, which its training and not the factor gives. For the others it is the window before.
    """
    kind, factor = rope.get("rope_type", rope.get("type", "default")), rope.get("factor")
    if kind == "default" or not _is_factor(factor):
        return max_position
    before = rope.get("original_max_position_embeddings")
    if kind not in ("yarn", "llama3") or not isinstance(before, int) or before < 1:
        before = max_position
    if kind == "llama3" and before != max_position:
        return max_position
    return max(max_position, int(before * factor))


def _is_factor(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 < value < 1e9
