"""One decoder for llama, mistral, qwen2 and qwen3: pre-norm attention and gated MLP blocks.

Q, K and V are one product, gate and up another, so that a step streams each weight once with few
launches. The decoder knows nothing of caches or positions: it hands each layer's q, k, v to a
`KVAccess`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from magicdec.engine.errors import ModelError
from magicdec.engine.model.parallel import in_parallel
from magicdec.engine.model.rope import Rope
from magicdec.engine.model.spec import ModelSpec
from magicdec.kernels.linear import Int8Linear, Linear, fbgemm, make_linear
from magicdec.kernels.pointwise import Pointwise

MakeLinear = Callable[[Tensor, Tensor | None], Linear]


class KVAccess(Protocol):
    """What one forward may do with a cache."""

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        """Rotates q and k of qk [n, T, H + Hkv, D], stores k and v [n, T, Hkv, D] and attends:
        [n, T, H, D]."""


class Decoder:
    """The model on its device, in its dtype.

    Raises ModelError when a weight is missing or has another shape than the spec says.
    """

    def __init__(
        self,
        spec: ModelSpec,
        weights: Mapping[str, Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
        pointwise: Pointwise | None = None,
    ) -> None:
        self.spec = spec
        self.device = device
        self.dtype = dtype
        self.pointwise = pointwise or Pointwise()
        self.rope = Rope(spec, device, dtype)
        self._weights = weights  # memory-mapped files: keeping them costs nothing
        load = _Loader(weights, device, dtype, make_linear, self.pointwise)
        layers = range(spec.layers)
        self._embedding = load.tensor(
            "model.embed_tokens.weight", spec.vocab_size, spec.hidden_size
        )
        self._head: Linear
        self._layers: list[_Layer]
        self._head, *self._layers = in_parallel(
            [partial(self._load_head, load), *(partial(_Layer, spec, load, i) for i in layers)]
        )
        self._norm = _Norm(spec, load, "model.norm")
        self._twins = _Twins()
        self._shortened: dict[int, Decoder] = {}  # by their layers

    def _load_head(self, load: _Loader) -> Linear:
        name = "model.embed_tokens" if self.spec.tied else "lm_head"
        return load.linear((name, self.spec.vocab_size), columns=self.spec.hidden_size)

    @property
    def quantized(self) -> Decoder:
        """A twin for drafting with int8 linears, made on first use and kept; all else is shared.

        The linears are kept by layer: the twin of the first layers and that of all hold the same.
        Raises ValueError when int8 linears do not work on this device and in this dtype.
        """
        made, depth = self._twins, self.spec.layers
        if depth not in made.decoders:
            make_int8 = partial(Int8Linear, pointwise=self.pointwise)
            load = _Loader(self._weights, self.device, self.dtype, make_int8, self.pointwise)
            missing = self._layers[len(made.layers) :]
            with fbgemm():
                head, *layers = in_parallel(
                    [
                        partial(self._load_head, load) if made.head is None else made.kept_head,
                        *(partial(layer.with_linears, load) for layer in missing),
                    ]
                )
            made.head, made.layers = head, made.layers + layers
            twin = copy(self)
            twin._head, twin._layers = head, made.layers[:depth]
            twin._twins, twin._shortened = _Twins(), {}
            made.decoders[depth] = twin
        return made.decoders[depth]

    def first(self, layers: int) -> Decoder:
        """The same model cut after its first layers: an early exit through final norm and head.
        It is kept, as is its twin."""
        if layers not in self._shortened:
            short = copy(self)
            short.spec = replace(self.spec, layers=layers, windows=self.spec.windows[:layers])
            short._layers, short._shortened = self._layers[:layers], {}
            self._shortened[layers] = short
        return self._shortened[layers]

    @torch.inference_mode()
    def forward(self, tokens: Tensor, kv: KVAccess, *, last_only: bool = False) -> Tensor:
        """tokens int64 [n, T] -> logits [n, T, V], or [n, 1, V] for the last token alone."""
        x = self._embedding[tokens]  # [n, T, hidden]
        for i, layer in enumerate(self._layers):
            x = layer(i, x, kv)
        if last_only:
            x = x[:, -1:]
        return self._head(self._norm(x))

    @property
    def nbytes(self) -> int:
        """Bytes of weights that it holds, those of twins included."""
        return self.spec.parameters * self.dtype.itemsize + self.twin_bytes

    @property
    def twin_bytes(self) -> int:
        """Bytes that twins hold, also of its first layers; 0 before their first use."""
        return self._twins.nbytes

    @property
    def streamed_bytes(self) -> int:
        """Bytes of weights that one forward reads (the embedding is a look-up)."""
        return self._head.nbytes + _nbytes(self._layers)


class _Twins:
    """What int8 linears a model has so far. A layer's depend on nothing but its weights, so that
    all that drafts with some of them shares them, for as long as the model is there."""

    def __init__(self) -> None:
        self.head: Linear | None = None
        self.layers: list[_Layer] = []
        self.decoders: dict[int, Decoder] = {}  # by their layers

    def kept_head(self) -> Linear | None:
        return self.head

    @property
    def nbytes(self) -> int:
        return 0 if self.head is None else self.head.nbytes + _nbytes(self.layers)


def _nbytes(layers: Iterable[_Layer]) -> int:
    return sum(linear.nbytes for layer in layers for linear in layer.linears())


class _Loader:
    """Fetches weights by name, checks their shape, fuses them and moves them."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        device: torch.device,
        dtype: torch.dtype,
        make_linear: MakeLinear,
        pointwise: Pointwise,
    ) -> None:
        self._weights, self._device, self._dtype = weights, device, dtype
        self._make_linear = make_linear
        self.pointwise = pointwise

    def has(self, name: str) -> bool:
        return name in self._weights

    def tensor(self, name: str, *shape: int) -> Tensor:
        if name not in self._weights:
            raise ModelError(f"the model has no weight {name!r}; is the download complete?")
        tensor = self._weights[name]
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"weight {name!r} has shape {tuple(tensor.shape)}, its configuration says {shape}"
            )
        return tensor.to(self._device, self._dtype)

    def linear(self, *parts: tuple[str, int], columns: int) -> Linear:
        """One linear from the named parts, stacked along the output dimension."""
        weight = self._stack([self.tensor(f"{n}.weight", rows, columns) for n, rows in parts])
        bias = None
        if any(self.has(f"{n}.bias") for n, _ in parts):
            bias = self._stack([self.tensor(f"{n}.bias", rows) for n, rows in parts])
        return self._make_linear(weight, bias)

    @staticmethod
    def _stack(parts: list[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Norm:
    """RMSNorm over the last dimension."""

    def __init__(self, spec: ModelSpec, load: _Loader, name: str, width: int | None = None) -> None:
        self._pointwise = load.pointwise
        self._weight = load.tensor(f"{name}.weight", width or spec.hidden_size)
        self._eps = spec.rms_norm_eps

    def __call__(self, x: Tensor) -> Tensor:
        return self._pointwise.norm(x, self._weight, self._eps)


class _Layer:
    def __init__(self, spec: ModelSpec, load: _Loader, index: int) -> None:
        name, dim = f"model.layers.{index}", spec.head_dim
        self._spec, self._name = spec, name
        self._pointwise = load.pointwise
        self._heads, self._kv_heads, self._dim = spec.heads, spec.kv_heads, dim
        self._load_linears(load)
        self._attn_norm = _Norm(spec, load, f"{name}.input_layernorm")
        self._mlp_norm = _Norm(spec, load, f"{name}.post_attention_layernorm")
        normed = load.has(f"{name}.self_attn.q_norm.weight")  # qwen3
        self._q_norm = _Norm(spec, load, f"{name}.self_attn.q_norm", dim) if normed else None
        self._k_norm = _Norm(spec, load, f"{name}.self_attn.k_norm", dim) if normed else None

    def _load_linears(self, load: _Loader) -> None:
        spec, hidden, dim = self._spec, self._spec.hidden_size, self._dim
        attn, mlp = f"{self._name}.self_attn", f"{self._name}.mlp"
        self._qkv = load.linear(
            (f"{attn}.q_proj", spec.heads * dim),
            (f"{attn}.k_proj", spec.kv_heads * dim),
            (f"{attn}.v_proj", spec.kv_heads * dim),
            columns=hidden,
        )
        self._out = load.linear((f"{attn}.o_proj", hidden), columns=spec.heads * dim)
        self._gate_up = load.linear(
            (f"{mlp}.gate_proj", spec.intermediate_size),
            (f"{mlp}.up_proj", spec.intermediate_size),
            columns=hidden,
        )
        self._down = load.linear((f"{mlp}.down_proj", hidden), columns=spec.intermediate_size)

    def with_linears(self, load: _Loader) -> _Layer:
        """The same layer with linears made anew by `load`."""
        twin = copy(self)
        twin._load_linears(load)
        return twin

    def linears(self) -> Iterator[Linear]:
        yield from (self._qkv, self._out, self._gate_up, self._down)

    def __call__(self, index: int, x: Tensor, kv: KVAccess) -> Tensor:
        n, new, _ = x.shape
        heads, kv_heads = self._heads, self._kv_heads
        qkv = self._qkv(self._attn_norm(x)).view(n, new, heads + 2 * kv_heads, self._dim)
        qk, v = qkv.split((heads + kv_heads, kv_heads), dim=2)  # [n, T, heads, D]
        if self._q_norm is not None and self._k_norm is not None:
            q, k = qk.split((heads, kv_heads), dim=2)
            qk = torch.cat((self._q_norm(q), self._k_norm(k)), dim=2)
        attended = kv.attend(index, qk, v).reshape(n, new, heads * self._dim)
        x = x + self._out(attended)
        return x + self._down(self._pointwise.gate(self._gate_up(self._mlp_norm(x))))
