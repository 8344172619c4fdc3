"""Model sizes from TOML files of this program and from Hugging Face configurations."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from magicdec.engine.errors import ConfigError
from magicdec.engine.loading.files import read_json
from magicdec.engine.model.spec import READABLE
from magicdec.engine.model.trained import scaled_window
from magicdec.profiles.costs.shapes import ModelShape
from magicdec.profiles.costs.strict_toml import Fields, read_toml

SIZES = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab")


def read_models(path: Path) -> list[tuple[ModelShape, tuple[str, ...]]]:
    """The [[model]] tables of `path`, each with its other names. Raises ConfigError."""
    top = Fields(str(path), read_toml(path)).only({"model"})
    known = {field.name for field in dataclasses.fields(ModelShape)} | {"aliases"}
    found = []
    for table in top.tables("model"):
        table.only(known)
        shape = ModelShape(
            name=table.text("name"),
            **{size: table.count(size) for size in SIZES},
            max_position=table.count("max_position"),
            tied=table.flag("tied", False),
            source=table.text("source", ""),
        )
        found.append((_checked(shape, table.where), table.texts("aliases")))
    return found


def read_config(path: Path) -> ModelShape:
    """The sizes in a Hugging Face config.json. Raises ConfigError or ModelError."""
    table = Fields(str(path), read_json(path))
    kind = table.data.get("model_type")
    if kind not in READABLE:
        raise ConfigError(
            f"{path}: architecture {kind!r} is not supported; "
            f"choose a model of type {', '.join(READABLE)}"
        )
    heads, hidden = table.count("num_attention_heads"), table.count("hidden_size")
    optional = {key: value for key, value in table.data.items() if value is not None}
    given = Fields(table.where, optional)  # absent and null both mean the default
    shape = ModelShape(
        name=path.resolve().parent.name,
        layers=table.count("num_hidden_layers"),
        hidden=hidden,
        intermediate=table.count("intermediate_size"),
        heads=heads,
        kv_heads=given.count("num_key_value_heads", heads),
        head_dim=given.count("head_dim", hidden // heads),
        vocab=table.count("vocab_size"),
        max_position=_trained(table),
        tied=given.flag("tie_word_embeddings", False),
        source=str(path),
    )
    return _checked(shape, table.where)


def _trained(table: Fields) -> int:
    scaled = table.data.get("rope_parameters") or table.data.get("rope_scaling")
    rope = scaled if isinstance(scaled, dict) else {}
    return scaled_window(table.count("max_position_embeddings"), rope)


def _checked(shape: ModelShape, where: str) -> ModelShape:
    if shape.heads % shape.kv_heads:
        raise ConfigError(
            f"{where}: {shape.heads} query heads cannot share {shape.kv_heads} KV heads evenly"
        )
    return shape
