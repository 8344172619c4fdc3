"""A model as the cost model sees it: sizes only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from magicdec.engine.errors import ConfigError
from magicdec.engine.loading.files import read_json
from magicdec.engine.model.spec import READABLE
from magicdec.engine.model.trained import scaled_window
from magicdec.profiles.files.toml import read_toml
from magicdec.profiles.files.typed import Count, Name, decoded


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder of the Llama family, as its Hugging Face configuration gives them."""

    name: Name
    layers: Count
    hidden: Count
    intermediate: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count
    max_position: Count  # the trained context window
    tied: bool = False  # the output head is the embedding matrix
    source: str = ""

    @property
    def streamed(self) -> int:
        """P: weights that one pass reads. The input embedding is a lookup and does not count."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate
        return self.layers * (attention + mlp) + self.vocab * self.hidden

    @property
    def stored(self) -> int:
        """Weights that memory holds."""
        return self.streamed + (0 if self.tied else self.vocab * self.hidden)

    def first(self, layers: int) -> ModelShape:
        """Its first layers with its head: an early exit."""
        return replace(self, name=f"{self.name}, {layers} layers", layers=layers)

    def kv_bytes_per_token(self, element_size: float = 2) -> float:
        """κ: bytes of K and V that one token adds, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_size


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
