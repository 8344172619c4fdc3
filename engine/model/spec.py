"""What the decoder must know of a model: sizes, rotary scaling, windows. Plain data, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.model.trained import scaled_window
from magicdec.engine.untrusted import shown

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
MOST_LAYERS, MOST_SIZE = 10_000, 2**31 - 1  # beyond all models; what is larger is damage
#: transformers' name of a mistral whose file lists its layers' kinds (layer_types); some say it.
_OTHER_NAMES = {"ministral": "mistral"}
READABLE = (*SUPPORTED, *_OTHER_NAMES)  # as files say it
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")


_SIZES = (
    "vocab_size", "hidden_size", "intermediate_size", "layers", "heads", "kv_heads", "head_dim",
    "max_position",
)  # fmt: skip


def _impossible(what: str) -> ModelError:
    return ModelError(
        f"the model's configuration is damaged: {what}; copy or download the model again"
    )


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder's shape. Biases and QK norms are not listed: they are used when weights exist.

    `rope` holds transformers' `rope_parameters` (rope_type, rope_theta, factor, ...).
    `windows` gives each layer's sliding window in tokens, None for full attention.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position: int  # the trained context window
    tied: bool  # the output head is the embedding matrix
    rope: dict[str, Any]
    windows: tuple[int | None, ...]
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.model_type not in SUPPORTED:
            raise ModelError(
                f"architecture {self.model_type!r} is not supported; "
                f"choose a model of type {', '.join(SUPPORTED)}"
            )
        if self.rope.get("rope_type", "default") not in ROPE_TYPES:
            raise ModelError(
                f"RoPE scaling {self.rope['rope_type']!r} is not supported; "
                f"supported kinds: {', '.join(ROPE_TYPES)}"
            )
        self._check_sizes()
        assert len(self.windows) == self.layers

    def _check_sizes(self) -> None:
        sizes = [(name, getattr(self, name)) for name in _SIZES]
        for window in set(self.windows) - {None}:
            if type(window) is not int or not 1 <= window <= MOST_SIZE:
                raise ModelError(
                    f"the model's sliding_window is {shown(window)}, in which no token sees any "
                    "other; in config.json write the window's tokens, or null for full attention"
                )
        for name, value in sizes:
            if type(value) is not int or not 1 <= value <= MOST_SIZE:
                raise _impossible(f"{name} is {shown(value)}, not a whole number above 0")
        if self.heads % self.kv_heads:
            raise _impossible(f"{self.heads} heads do not share {self.kv_heads} KV heads evenly")
        if self.head_dim % 2:
            raise _impossible(f"head_dim is {self.head_dim}, an odd number")
        eps = self.rms_norm_eps
        if not isinstance(eps, int | float) or not 0 <= eps < math.inf:
            raise _impossible(f"rms_norm_eps is {shown(eps)}")
        for id in self.eos_ids:
            if type(id) is not int:
                raise _impossible(f"an end-of-text token is {shown(id)}, not the number of one")

    @property
    def trained_window(self) -> int:
        """Tokens that it was trained, or is scaled, to see."""
        return scaled_window(self.max_position, self.rope)

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads

    @property
    def parameters(self) -> int:
        """Weights of the matrices. A tied head counts: it is kept in a layout of its own."""
        attention = self.hidden_size * self.head_dim * 2 * (self.heads + self.kv_heads)
        mlp = 3 * self.hidden_size * self.intermediate_size
        return self.layers * (attention + mlp) + 2 * self.vocab_size * self.hidden_size

    def kv_bytes_per_token(self, element_size: int) -> int:
        """κ: bytes of K and V that one token adds, over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * element_size

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelSpec:
        fields = dict(data)
        fields["windows"] = tuple(fields["windows"])
        fields["eos_ids"] = tuple(fields["eos_ids"])
        return cls(**fields)

    @classmethod
    def from_hf(cls, config: Any, eos_ids: tuple[int, ...] = ()) -> ModelSpec:
        """From a transformers configuration object. Raises ModelError for other architectures."""
        kind = _OTHER_NAMES.get(config.model_type, config.model_type)
        if kind not in SUPPORTED:
            raise ModelError(
                f"architecture {kind!r} is not supported; "
                f"choose a model of type {', '.join(READABLE)}"
            )
        layers = config.num_hidden_layers
        # A llama model has none: see `loading.layer_kinds`.
        window = None if kind == "llama" else getattr(config, "sliding_window", None)
        kinds = getattr(config, "layer_types", None)
        windows = tuple(
            window if kinds is None or kinds[i] == "sliding_attention" else None
            for i in range(layers)
        )
        return cls(
            model_type=kind,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            layers=layers,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads or config.num_attention_heads,
            head_dim=getattr(config, "head_dim", None)
            or config.hidden_size // config.num_attention_heads,
            rms_norm_eps=config.rms_norm_eps,
            max_position=config.max_position_embeddings,
            tied=bool(config.tie_word_embeddings),
            rope=dict(config.rope_parameters),
            windows=windows,
            eos_ids=eos_ids,
        )
