"""The tensors that a model of a given specification has, by Hugging Face name."""

from __future__ import annotations

from collections.abc import Mapping

from magicdec.engine.errors import ModelError
from magicdec.engine.model.spec import ModelSpec

Shape = tuple[int, ...]

HEAD = "lm_head.weight"


def required_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Every tensor that the decoder cannot do without."""
    shapes: dict[str, Shape] = {
        "model.embed_tokens.weight": (spec.vocab_size, spec.hidden_size),
        "model.norm.weight": (spec.hidden_size,),
    }
    if not spec.tied:
        shapes[HEAD] = (spec.vocab_size, spec.hidden_size)
    for i in range(spec.layers):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}{norm}.weight"] = (spec.hidden_size,)
        for linear, (rows, columns) in _linears(spec).items():
            shapes[f"{layer}{linear}.weight"] = (rows, columns)
        optional = _optional(spec)
        for name in _ALWAYS.get(spec.model_type, ()):
            shapes[layer + name] = optional[name]
    return shapes


def optional_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """Tensors that are used where a checkpoint has them: biases and norms of q and k."""
    optional = _optional(spec)
    return {
        f"model.layers.{i}.{name}": shape
        for i in range(spec.layers)
        for name, shape in optional.items()
    }


def check_shapes(spec: ModelSpec, found: Mapping[str, Shape], where: object) -> None:
    """Raises ModelError when a tensor of `spec` is missing from `found` or has another shape."""
    required = required_shapes(spec)
    for name in required:
        if name not in found and name == HEAD:
            raise ModelError(
                f"{where} is a base model: it has no head ({HEAD}), and its configuration does not "
                "say that the embeddings are it (tie_word_embeddings); choose the model that was "
                "saved with its head"
            )
        if name not in found:
            raise ModelError(
                f"{where} lacks tensor {name!r}, which its configuration asks for; "
                "copy or download the whole model again"
            )
    for name, shape in (required | optional_shapes(spec)).items():
        if found.get(name, shape) != shape:
            heads = (
                f" for {spec.heads} heads and {spec.kv_heads} KV heads of {spec.head_dim}"
                if ".self_attn." in name
                else ""
            )
            raise ModelError(
                f"tensor {name!r} in {where} has shape {list(found[name])} where its "
                f"configuration asks for {list(shape)}{heads}; check config.json, or copy or "
                "download the whole model again"
            )


_ALWAYS = {
    "qwen2": tuple(f"self_attn.{x}_proj.bias" for x in "qkv"),
    "qwen3": ("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
}


def _linears(spec: ModelSpec) -> dict[str, tuple[int, int]]:
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    return {
        "self_attn.q_proj": (queries, spec.hidden_size),
        "self_attn.k_proj": (keys, spec.hidden_size),
        "self_attn.v_proj": (keys, spec.hidden_size),
        "self_attn.o_proj": (spec.hidden_size, queries),
        "mlp.gate_proj": (spec.intermediate_size, spec.hidden_size),
        "mlp.up_proj": (spec.intermediate_size, spec.hidden_size),
        "mlp.down_proj": (spec.hidden_size, spec.intermediate_size),
    }


def _optional(spec: ModelSpec) -> dict[str, Shape]:
    biases: dict[str, Shape] = {
        f"{name}.bias": (rows,) for name, (rows, _) in _linears(spec).items()
    }
    norms = {f"self_attn.{x}_norm.weight": (spec.head_dim,) for x in "qk"}
    return biases | norms
