"""What a run would use here: versions, device, threads, memory, folders."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import psutil

from magicdec.cli.report_view import size_text
from magicdec.cli.settings import config_files
from magicdec.kernels.cachedir import cache_root


def findings() -> Iterator[tuple[str, str]]:
    for package in ("magicdec", "torch", "transformers", "tokenizers", "safetensors"):
        yield package, _version(package)
    yield "python", f"{platform.python_version()} on {platform.platform(terse=True)}"
    yield from _device()
    yield "cores", f"{_usable_cores()} usable of {os.cpu_count()}"
    memory = psutil.virtual_memory()
    yield "memory", f"{size_text(memory.available)} free of {size_text(memory.total)}"
    cache = cache_root()
    size = sum(f.stat().st_size for f in cache.rglob("*") if f.is_file())
    yield "cache", f"{cache} ({size_text(size)})"
    disk = psutil.disk_usage(str(next(p for p in (cache, *cache.parents) if p.exists())))
    yield "disk", f"{size_text(disk.free)} free for the cache"
    for path in config_files():
        yield "config", f"{path} ({'read' if path.exists() else 'not there'})"


def _device() -> Iterator[tuple[str, str]]:
    import torch

    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(0)
        yield "device", f"cuda: {facts.name}, {size_text(facts.total_memory)}"
    else:
        yield "device", f"cpu, {torch.backends.cpu.get_cpu_capability()}"
    yield "threads", str(torch.get_num_threads())


def _usable_cores() -> int:
    """Cores this process may run on; containers often allow fewer than there are."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
