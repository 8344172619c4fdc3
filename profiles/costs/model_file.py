"""Model sizes from TOML files of this program and from Hugging Face configurations."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from magicdec.engine.errors import ConfigError
from magicdec.engine.loading.files import read_json
from magicdec.engine.model.spec import READABLE
from magicdec.engine.model.trained import scaled_window
from magicdec.profiles.costs.shapes import ModelShape
from magicdec.profiles.costs.strict_toml import read_toml
from magicdec.profiles.storage.typed import Count, decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table(ModelShape):
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    model: Annotated[tuple[_Table, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class _Config:
    """What a config.json says of sizes."""

    num_hidden_layers: Count
    hidden_size: Count
    intermediate_size: Count
    num_attention_heads: Count
    vocab_size: Count
    max_position_embeddings: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    tie_word_embeddings: bool = False


def read_models(path: Path) -> list[tuple[ModelShape, tuple[str, ...]]]:
    """The [[model]] tables of `path`, each with its other names. Raises ConfigError."""
    names = [part.name for part in dataclasses.fields(ModelShape)]
    found = []
    for i, table in enumerate(decoded(_File, read_toml(path), str(path)).model, 1):
        shape = ModelShape(*(getattr(table, name) for name in names))
        found.append((_checked(shape, f"{path}: model {i}"), table.aliases))
    return found


def read_config(path: Path) -> ModelShape:
    """The sizes in a Hugging Face config.json. Raises ConfigError or ModelError."""
    data = read_json(path)
    kind = data.get("model_type")
    if kind not in READABLE:
        raise ConfigError(
            f"{path}: architecture {kind!r} is not supported; "
            f"choose a model of type {', '.join(READABLE)}"
        )
    given = {key: value for key, value in data.items() if value is not None}
    config = decoded(
        _Config, given, str(path), lenient=True
    )  # absent and null both mean the default
    heads = config.num_attention_heads
    scaled = data.get("rope_parameters") or data.get("rope_scaling")
    shape = ModelShape(
        name=path.resolve().parent.name,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=heads,
        kv_heads=config.num_key_value_heads or heads,
        head_dim=config.head_dim or config.hidden_size // heads,
        vocab=config.vocab_size,
        max_position=scaled_window(
            config.max_position_embeddings, scaled if isinstance(scaled, dict) else {}
        ),
        tied=config.tie_word_embeddings,
        source=str(path),
    )
    return _checked(shape, str(path))


def _checked(shape: ModelShape, where: str) -> ModelShape:
    if shape.heads % shape.kv_heads:
        raise ConfigError(
            f"{where}: {shape.heads} query heads cannot share {shape.kv_heads} KV heads evenly"
        )
    return shape
