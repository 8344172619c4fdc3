"""Linear layers whose weight is prepared once for the device it runs on.

A verify pass multiplies a few tokens by every weight: skinny products, bound by reading the
weight. On CPU oneDNN reads a weight two to three times faster when it was reordered beforehand
into its own blocked layout; elsewhere `F.linear` is what the vendor tuned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

#: Tokens the blocked layout is chosen for. Between decode (1) and prefill (512), 8 keeps the
#: reading rate of 1 to 16 tokens near the memory's and costs prefill a few percent.
LAYOUT_TOKENS = 8


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


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest linear for where the weight [out, in] lies. The caller may drop the weight."""
    packable = weight.device.type == "cpu" and weight.dtype is torch.float32
    if packable and torch.backends.mkldnn.is_available():
        return PackedLinear(weight.contiguous(), bias)
    return PlainLinear(weight, bias)
