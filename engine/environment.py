"""Where a run took place: what a reader needs to judge its numbers."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")


def environment(device: torch.device) -> dict[str, object]:
    """Versions and hardware, as plain data."""
    import torch

    return {
        "magicdec": version("magicdec"),
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
        "platform": platform.platform(),
        "device": device.type,
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return cpu_name()


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
