"""Linear layers whose weight is prepared once for the device it runs on.

A verify pass multiplies a few tokens by every weight: skinny products, bound by reading the
weight. On CPU oneDNN reads a weight two to three times faster when it was reordered beforehand
into its own blocked layout; elsewhere `F.linear` is what the vendor tuned.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from magicdec.kernels.pointwise import Pointwise

#: Tokens the blocked layout is chosen for. Between decode (1) and prefill (512), 8 keeps the
#: reading rate of 1 to 16 tokens near the memory's and costs prefill a few percent.
LAYOUT_TOKENS = 8

#: Largest int8 weight, see `Int8Linear`.
INT8_MAX = 64


class Linear(ABC):
    """y = x Wᵀ + b for x [..., in] -> [..., out]."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor: ...

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that one call streams from memory."""


class PlainLinear(Linear):
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias  # [out, in], [out]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes


class PackedLinear(Linear):
    """oneDNN with the weight in its blocked layout; float32 on CPU only."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, LAYOUT_TOKENS)
        self._bias = bias
        self._nbytes = weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )
        return out

    @property
    def nbytes(self) -> int:
        return self._nbytes


class Int8Linear(Linear):
    """int8 weights with a scale per output channel, activations rounded on the fly; CPU only.

    FBGEMM's kernels read a quarter of the bytes. Without VNNI they add products of two in 16
    bits, which overflow when both factors use all their bits: weights are limited to 7 bits, so
    that 2 * 255 * 64 < 2^15. The activations keep 8, because their outliers need the range.
    FBGEMM takes one scale for all activations of a call; `Pointwise.apart` makes that each
    token's own, so that a row's draft does not depend on which others are in the batch. A token
    that is alone is left to FBGEMM, whose steps are as fine, but lie elsewhere.
    Make it inside `with fbgemm():`. Raises ValueError for a weight that is not float32 on a CPU
    with these kernels.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, pointwise: Pointwise | None = None
    ) -> None:
        reason = int8_unsupported(weight.device, weight.dtype)
        if reason:
            raise ValueError(reason)
        largest = torch.maximum(weight.amax(dim=1), -weight.amin(dim=1))  # abs() would be a copy
        scale = largest.clamp_min(torch.finfo(weight.dtype).tiny) / INT8_MAX
        self._nbytes = weight.numel() + scale.nbytes
        self._bias, self._pointwise = bias, pointwise or Pointwise()
        assert torch.backends.quantized.engine == "fbgemm", "make it inside `with fbgemm():`"
        quantized = torch.quantize_per_channel(
            weight, scale, torch.zeros_like(scale, dtype=torch.int64), 0, torch.qint8
        )
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._width = weight.shape[1]
        # Of each row of the weight [out]. Ones are the end of their range: no rounding.
        self._sums = self._product(torch.ones(1, self._width))[0]

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() == self._width:  # it is alone
            out = self._product(x)
            return out if self._bias is None else out.add_(self._bias)
        return self._pointwise.apart(x, self._product, self._sums, self._bias)

    def _product(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed)
        return out

    @property
    def nbytes(self) -> int:
        return self._nbytes


@contextmanager
def fbgemm() -> Iterator[None]:
    """While Int8Linears are made: which engine's layout they get is one switch for all threads."""
    chosen = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        with warnings.catch_warnings():
            # torch announces that this tensor type will go; nothing replaces its kernels yet.
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        torch.backends.quantized.engine = chosen


def int8_unsupported(device: torch.device, dtype: torch.dtype) -> str:
    """Why `Int8Linear` cannot be used here; empty when it can."""
    if device.type != "cpu" or dtype is not torch.float32:
        name = str(dtype).removeprefix("torch.")
        return f"int8 weights need float32 on a CPU, this is {name} on {device.type}"
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return "int8 weights need an x86 CPU with AVX2"
    return ""


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest linear for where the weight [out, in] lies. The caller may drop the weight."""
    packable = weight.device.type == "cpu" and weight.dtype is torch.float32
    if packable and torch.backends.mkldnn.is_available():
        return PackedLinear(weight.contiguous(), bias)
    return PlainLinear(weight, bias)
