"""The numbers of a config.json, before anything is made by their size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.model.spec import MOST_LAYERS, MOST_SIZE
from magicdec.engine.untrusted import shown

_SIZES = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
_ROPE = ("rope_scaling", "rope_parameters")
_FACTORS = ("factor", "low_freq_factor", "high_freq_factor", "attention_factor", "beta_fast",
            "beta_slow", "original_max_position_embeddings")  # fmt: skip
_THETA = "rope_theta"


def check_values(file: Path, config: Mapping[str, Any]) -> None:
    """Raises ModelError for a size, or a number of RoPE, that no model has."""
    for name, most in (("num_hidden_layers", MOST_LAYERS), *((name, MOST_SIZE) for name in _SIZES)):
        value = config.get(name)
        if value is not None and not _whole(value, most):
            raise _refused(file, name, value, f"a whole number in 1..{most:,} is needed")
    scopes: list[tuple[str, Any]] = [("", config)]
    for name in _ROPE:
        rope = config.get(name)
        if rope is not None and not isinstance(rope, dict):
            raise _refused(file, name, rope, "an object is needed")
        scopes.append((f"{name}.", rope or {}))
    for prefix, values in scopes:
        for name in (_THETA, *(_FACTORS if prefix else ())):
            value = values.get(name)
            if value is not None and not _positive(value):
                raise _refused(file, prefix + name, value, "a finite number above 0 is needed")


def _whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and value > 0
    except OverflowError:  # an integer beyond every float
        return False


def _refused(file: Path, name: str, value: object, needed: str) -> ModelError:
    return ModelError(
        f"{file} has {name} = {shown(value)} where {needed}; copy or download the model again"
    )
