"""What a run would use here: versions, device, threads, memory, folders."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from magicdec.cli.run.report import size_text
from magicdec.cli.settings.resolve import config_files, read_file
from magicdec.engine.errors import ConfigError
from magicdec.engine.memory.free import host_room
from magicdec.kernels import native_build
from magicdec.kernels.cachedir import CacheFolderError, cache_root


def findings() -> Iterator[tuple[str, str]]:
    for package in ("magicdec", "torch", "transformers", "tokenizers", "safetensors"):
        yield package, _version(package)
    yield "python", f"{platform.python_version()} on {platform.platform(terse=True)}"
    yield from _device()
    yield "compiler", _compiler()
    yield "kernels", native_build.state()
    yield "cores", f"{_usable_cores()} usable of {os.cpu_count()}"
    yield "memory", _memory()
    yield from _cache()
    for path in config_files():
        yield "config", _config(path)


def _cache() -> Iterator[tuple[str, str]]:
    try:
        cache = cache_root()
    except CacheFolderError as error:
        yield "cache", str(error)
        return
    yield "cache", f"{cache} ({size_text(_size(cache))})"
    disk = psutil.disk_usage(str(next(p for p in (cache, *cache.parents) if p.exists())))
    yield "disk", f"{size_text(disk.free)} free for the cache"


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):  # gone meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total


def _config(path: Path) -> str:
    try:
        read_file(path)
    except ConfigError as error:  # it names the file
        return f"{' '.join(str(error).split())} (no run starts with it)"
    return f"{path} ({'read' if path.exists() else 'not there'})"


def _compiler() -> str:
    """What would build the native attention kernel for CPUs."""
    try:
        return " ".join(native_build.find_compiler())
    except native_build.BuildError as error:
        return f"{error} (without it there is no native attention kernel)"


def _memory() -> str:
    """What runs on the CPU may take."""
    import torch

    room = host_room(torch.get_num_threads())
    return f"{size_text(room.free)} free of {size_text(room.limit)}, by {room.source}"


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
