"""The specification of a model from the metadata of its GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.end_of_turn import named_ends
from magicdec.engine.model.spec import MOST_LAYERS, MOST_SIZE, ModelSpec
from magicdec.engine.untrusted import shown

#: GGUF architecture -> model type; mistral is exported as llama.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

Metadata = Mapping[str, Any]


def spec_from_metadata(
    metadata: Metadata, *, vocab_size: int, tied: bool, rope_factors: NDArray[np.float32] | None
) -> ModelSpec:
    """`vocab_size` is the embedding's, which may be padded beyond the tokenizer's.

    `rope_factors` [D / 2] is the tensor rope_freqs.weight, by which frequencies are divided.

    Raises ModelError for what the decoder would compute differently from the file's model.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"GGUF architecture {architecture!r} is not supported; "
            f"choose a file of type {', '.join(ARCHITECTURES)}"
        )
    read = _Section(metadata, architecture)
    heads = read.positive("attention.head_count")
    hidden = read.positive("embedding_length")
    layers = read.positive("block_count", most=MOST_LAYERS)
    head_dim = read.positive(
        "attention.key_length", read.whole("rope.dimension_count", hidden // heads)
    )
    read.must_be("attention.value_length", head_dim)
    read.must_be("rope.dimension_count", head_dim)
    read.must_be("expert_count", 0)
    context = read.whole("context_length")
    # Files of this kind do not say which layers a window applies to.
    if 0 < read.whole("attention.sliding_window", context) < context:
        read.must_be("attention.sliding_window", 0)
    return ModelSpec(
        model_type=ARCHITECTURES[architecture],
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=read.whole("feed_forward_length"),
        layers=layers,
        heads=heads,
        kv_heads=read.positive("attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=_decimal(read.number("attention.layer_norm_rms_epsilon")),
        max_position=context,
        tied=tied,
        rope=_rope(read, head_dim, rope_factors),
        windows=(None,) * layers,
        eos_ids=named_ends(metadata),
    )


class _Section:
    """The keys of one architecture, with the checks that every read needs."""

    def __init__(self, metadata: Metadata, architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self._metadata.get(f"{self._prefix}.{key}", default)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if isinstance(value, list) and len(set(value)) == 1:  # one value for each layer
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelError(
                f"the GGUF file has {self._prefix}.{key} = {value!r} where one number is needed; "
                "choose a file converted by a current llama.cpp"
            )
        return value

    def whole(self, key: str, default: int | None = None) -> int:
        """A size, or 0 where a file says so."""
        value = self.number(key, default)
        if not 0 <= value <= MOST_SIZE or value != int(value):
            raise self._odd(key, value, "a whole number is needed")
        return int(value)

    def positive(self, key: str, default: int | None = None, *, most: int = MOST_SIZE) -> int:
        value = self.whole(key, default)
        if not 1 <= value <= most:
            raise self._odd(key, value, f"a whole number in 1..{most:,} is needed")
        return value

    def _odd(self, key: str, value: object, needed: str) -> ModelError:
        return ModelError(
            f"the GGUF file has {self._prefix}.{key} = {shown(value)} where {needed}; "
            "download it again"
        )

    def must_be(self, key: str, expected: float) -> None:
        """Refuses a value that changes the computation in a way the decoder does not know."""
        if (value := self.number(key, expected)) != expected:
            raise ModelError(
                f"the GGUF file has {self._prefix}.{key} = {value}, supported is only {expected}; "
                "choose another file or the model's safetensors"
            )


def _rope(read: _Section, head_dim: int, factors: NDArray[np.float32] | None) -> dict[str, Any]:
    """transformers' `rope_parameters`."""
    theta = _decimal(read.number("rope.freq_base", 10_000.0))
    kind = read.get("rope.scaling.type", "none")
    factor = read.number("rope.scaling.factor", read.number("rope.scale_linear", 1.0))
    if kind == "none" and read.get("rope.scale_linear") is not None:
        kind = "linear"  # written before scaling had a type
    if factors is not None and not np.allclose(factors, 1.0):
        if kind != "none":
            raise ModelError(
                f"the GGUF file has both rope_freqs.weight and {kind} RoPE scaling, which is not "
                "supported; choose the model's safetensors"
            )
        return _llama3(theta, head_dim, factors)
    if kind not in ("none", "linear", "yarn"):
        raise ModelError(
            f"RoPE scaling {kind!r} of the GGUF file is not supported; "
            "supported kinds: none, linear, yarn, llama3"
        )
    if kind == "none" or factor in (0.0, 1.0):  # llama.cpp reads 0 as 1
        return {"rope_type": "default", "rope_theta": theta}
    if kind == "yarn":
        return _yarn(read, theta, factor)
    return {"rope_type": "linear", "rope_theta": theta, "factor": factor}


def _yarn(read: _Section, theta: float, factor: float) -> dict[str, Any]:
    for key, usual in {"yarn_ext_factor": 1.0, "yarn_log_multiplier": 0.0}.items():
        read.must_be(f"rope.scaling.{key}", usual)
    rope: dict[str, Any] = {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": read.whole(
            "rope.scaling.original_context_length", read.whole("context_length")
        ),
        "beta_fast": read.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": read.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    scale = read.number(
        "rope.scaling.attn_factor", read.number("rope.scaling.yarn_attn_factor", 1.0)
    )
    if scale != 1.0:  # llama.cpp multiplies the usual factor, transformers replaces it
        rope["attention_factor"] = scale * (1.0 + 0.1 * math.log(factor))
    return rope


def _llama3(theta: float, head_dim: int, factors: NDArray[np.float32]) -> dict[str, Any]:
    """The file holds only the resulting factors, so Llama 3's published settings are held to them.

    https://arxiv.org/abs/2407.21783; only `factor` differs between its releases.
    """
    factor = _decimal(float(factors.max()))
    low, high, trained = 1.0, 4.0, 8192
    wavelength = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)  # [D / 2]
    smooth = np.clip((trained / wavelength - low) / (high - low), 0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / factor + smooth)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise ModelError(
            "rope_freqs.weight of the GGUF file is not Llama 3's RoPE scaling, which is the only "
            "one supported; choose the model's safetensors"
        )
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": trained,
    }


def _decimal(value: float) -> float:
    """A float32 as its shortest decimal: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
