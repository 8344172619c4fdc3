"""Chooses device, precisions and attention kernel: what `auto` comes to."""

from __future__ import annotations

import torch

from magicdec.engine.errors import ConfigError, ModelError
from magicdec.engine.loading.checkpoint import Progress
from magicdec.kernels.attention import AttentionBackend
from magicdec.kernels.backends import get_backend
from magicdec.kernels.native_build import BuildError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
KV_DTYPES = ("float32", "bfloat16")


def pick_attention(
    name: str, device: torch.device, progress: Progress, notices: list[str]
) -> AttentionBackend:
    """The backend; appends to `notices` when another one stands in.

    Raises ConfigError for one that does not exist here, ModelError for one that cannot be built.
    """
    try:
        return get_backend(
            name, device, progress=lambda what: progress(what, None), warn=notices.append
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except BuildError as error:
        raise ModelError(f"attention native: {error}; or use --attention auto") from error


def pick_device(name: str) -> torch.device:
    """auto: a GPU when there is one. Raises ModelError when the device is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError(f"device {name!r} is not available here; use --device cpu")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"no device is called {name!r}; use auto, cpu or cuda") from error


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: float32 on CPU, where it is exact and fastest; bfloat16 on a GPU."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise ConfigError(f"no dtype is called {name!r}; use auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def pick_kv_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """auto: the model's own dtype, so that nothing is rounded that was not asked for."""
    if name == "auto":
        return dtype
    if name not in KV_DTYPES:
        raise ConfigError(f"no KV dtype is called {name!r}; use auto, {', '.join(KV_DTYPES)}")
    return DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
