"""The registry of attention backends: names, and which one `auto` picks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch

from magicdec.kernels.attention import AttentionBackend
from magicdec.kernels.native_attention import CpuAttention
from magicdec.kernels.native_build import BuildError
from magicdec.kernels.reference import ReferenceAttention
from magicdec.kernels.sdpa import SdpaAttention


def backend_names() -> Sequence[str]:
    """Backends by name; `auto` picks the fastest that works on the device."""
    return ("auto", "native", "sdpa", "reference")


def get_backend(
    name: str,
    device: torch.device,
    *,
    progress: Callable[[str], None] = warnings.warn,
    warn: Callable[[str], None] = warnings.warn,
) -> AttentionBackend:
    """The backend called `name`; `auto` takes sdpa where the native one cannot be built.

    progress: gets a line when a kernel has to be built; warn: when `sdpa` takes its place.
    Raises ValueError for an unknown name, or one that does not work on the device, and BuildError
    when the native backend was asked for by name and cannot be built.
    """
    on_cpu = device.type == "cpu"
    if name == "native" and not on_cpu:
        raise ValueError("attention backend 'native' runs on a CPU only; use auto or sdpa")
    if name == "native":
        return CpuAttention(progress)
    if name == "auto" and on_cpu:
        try:
            return CpuAttention(progress)
        except BuildError as error:
            warn(f"attention by PyTorch's slower sdpa: {error}")
            return SdpaAttention()
    if name in ("auto", "sdpa"):
        return SdpaAttention()
    if name == "reference":
        return ReferenceAttention()
    raise ValueError(f"no attention backend {name!r}; choose from {', '.join(backend_names())}")
