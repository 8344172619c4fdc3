"""The tensors of a GGUF file as transformers names and orders them."""

from __future__ import annotations

import re
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from magicdec.engine.errors import ModelError
from magicdec.engine.model.spec import ModelSpec

ROPE_FACTORS = "rope_freqs.weight"

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")


def hf_name(name: str) -> str:
    """Raises ModelError for a tensor that the decoder would not use."""
    match = _NAME.fullmatch(name)
    if match is not None:
        layer, part, kind = match["layer"], match["part"], match["kind"]
        if layer is None and part in _TOP:
            return f"{_TOP[part]}.{kind}"
        if layer is not None and part in _LAYER:
            return f"model.layers.{layer}.{_LAYER[part]}.{kind}"
    raise ModelError(
        f"the GGUF file has a tensor {name!r} that no supported model has; "
        "choose a dense llama, qwen2 or qwen3 file"
    )


def shape_of(tensor: Any) -> tuple[int, ...]:
    """GGUF lists dimensions from the innermost out."""
    return tuple(int(size) for size in reversed(tensor.shape))


def values(tensor: Any, spec: ModelSpec, architecture: str) -> NDArray[np.float32]:
    """One tensor dequantised to float32, its rows in transformers' order."""
    array = gguf.dequantize(tensor.data, tensor.tensor_type)
    array = np.asarray(array, dtype=np.float32).reshape(shape_of(tensor))
    if architecture == "llama":
        if ".attn_q." in tensor.name:
            return unpermute(array, spec.heads)
        if ".attn_k." in tensor.name:
            return unpermute(array, spec.kv_heads)
    return array


def unpermute(array: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undoes llama.cpp's row order for its rotary embedding.

    It pairs neighbouring rows of a head where transformers pairs row i with row i + D / 2.
    """
    paired = array.reshape(heads, -1, 2, *array.shape[1:])  # [H, D / 2, 2, ...]
    return paired.swapaxes(1, 2).reshape(array.shape)
