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
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return cpu_name()


def cpu_name() -> str:
    return _cpu().get("model name") or platform.processor() or platform.machine()


def machine() -> str:
    """What tells machines apart whose processors have one name, as those of virtual machines do:
    "GenuineIntel 6/143/8, 266240 KB cache, 2 cores"."""
    cpu = _cpu()
    kind = "/".join(cpu[key] for key in ("cpu family", "model", "stepping") if key in cpu)
    first = f"{cpu.get('vendor_id', platform.machine())} {kind}".strip()
    cache = [f"{cpu['cache size']} cache"] if "cache size" in cpu else []
    return ", ".join((first, *cache, f"{os.cpu_count()} cores"))


def _cpu() -> dict[str, str]:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in first.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
