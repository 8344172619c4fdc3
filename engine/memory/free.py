"""How much more memory this process may take, and what says so. Imports no torch.

The machine's free memory is one bound of several. A container's group and each group around it
has its own limit (cgroup v2 or v1); `ulimit -v` and `ulimit -d` bound the process. The tightest
counts. Files' pages that a group holds are free as they are in the machine's own count: the kernel
drops them when memory is asked for.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from magicdec.engine.errors import OutOfMemoryError

if sys.platform != "win32":
    import resource

MIB = 2**20
ADDRESS_SPACE = "ulimit -v"
_M_ARENA_MAX = -8  # of malloc.h
#: What libraries take in small pieces: code made at run time, tables, caches of primitives. Some
#: (oneDNN, FBGEMM) use what malloc gave them without a look: short of it they end the process.
_LIBRARIES = 96 * MIB
_IMPORTS = 256 * MIB  # torch, transformers and the rest, without torch's libraries
_STACK = 8 * MIB  # of a thread, unless `ulimit -s` says otherwise


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are free, of how many, by whose count."""

    free: int
    limit: int
    source: str


def host_room(threads: int = 1, root: Path = Path("/")) -> Room:
    """The tightest bound on what this process may still take.

    threads: that will compute; under a limit of the process each needs a part of it to itself.
    root: where /proc/self/cgroup and the like are looked up.
    """
    machine = psutil.virtual_memory()
    rooms = [Room(int(machine.available), int(machine.total), "the machine's own count")]
    rooms += [room for folder in _groups(root) if (room := _group_room(folder, root))]
    rooms += process_rooms(threads)
    return min(rooms, key=lambda room: room.free)


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process's memory groups, v2 and v1, each with those around it."""
    paths = _group_paths(root)
    for line in _lines(root / "proc/self/mountinfo"):
        # 32 31 0:29 /shown /at rw,relatime shared:1 - cgroup2 cgroup2 rw,memory
        head, _, tail = line.partition(" - ")
        fields, kind = head.split(), tail.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        if kind[0] == "cgroup" and "memory" not in kind[2].split(","):
            continue
        shown, mount = PurePosixPath(fields[3]), root / fields[4].lstrip("/")
        path = paths.get(kind[0])
        inside = path is not None and path.is_relative_to(shown) and ".." not in path.parts
        folder = mount / path.relative_to(shown) if path is not None and inside else mount
        yield from (folder, *(above for above in folder.parents if above.is_relative_to(mount)))


def _group_paths(root: Path) -> dict[str, PurePosixPath]:
    """Where in the hierarchy of each kind this process is."""
    found = {}
    for line in _lines(root / "proc/self/cgroup"):  # "0::/user.slice" and "4:memory:/docker/1f"
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found["cgroup2"] = PurePosixPath(path)
        elif "memory" in controllers.split(","):
            found["cgroup"] = PurePosixPath(path)
    return found


def _group_room(folder: Path, root: Path) -> Room | None:
    """What a group leaves; None without a limit. memory.high counts: beyond it all slows down."""
    for limits, usage, prefix in (
        (("memory.max", "memory.high"), "memory.current", ""),
        (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_"),
    ):
        bounds = {name: n for name in limits if (n := _number(folder / name)) is not None}
        used = _number(folder / usage)
        if not bounds or used is None:
            continue
        name = min(bounds, key=lambda name: bounds[name])
        stat = dict(line.split()[:2] for line in _lines(folder / "memory.stat") if " " in line)
        kept = ("inactive_file", "active_file", "slab_reclaimable")  # as in MemAvailable
        droppable = sum(int(stat.get(prefix + key, 0)) for key in kept)
        free = bounds[name] - max(0, used - droppable)
        place = PurePosixPath("/") / (folder / name).relative_to(root).as_posix()
        return Room(max(0, free), bounds[name], str(place))
    return None


def process_rooms(threads: int, *, before_torch: bool = False) -> Iterator[Room]:
    """What the limits of this process leave beyond what libraries and threads need.

    before_torch: beyond what torch and all that comes with it takes, too.
    """
    if sys.platform == "win32":
        return
    process = psutil.Process()
    used = process.memory_info()
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    stack = stack if 0 < stack < 64 * MIB else _STACK
    # One more: while weights are prepared, as many threads do that beside this one.
    reserve = _LIBRARIES + max(0, threads + 1 - process.num_threads()) * stack
    if before_torch:
        reserve += _IMPORTS
    for kind, taken, source in (
        (resource.RLIMIT_AS, used.vms + _mapped_by_torch() * before_torch, ADDRESS_SPACE),
        (resource.RLIMIT_DATA, getattr(used, "data", 0), "ulimit -d"),
    ):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield Room(max(0, limit - taken - reserve), limit, source)


def require_room(threads: int = 1, *, before_torch: bool = False) -> None:
    """Raises OutOfMemoryError when a limit of this process leaves hardly anything: libraries that
    run into it end the process, or never return, instead of raising an error."""
    for room in process_rooms(threads, before_torch=before_torch):
        if room.free <= 0:
            advice = "" if before_torch else ", or lower --threads, --batch or --context"
            raise OutOfMemoryError(
                f"of the {room.limit // MIB:,} MiB that {room.source} allows too little is left "
                f"to go on; raise that limit{advice}"
            )


def _mapped_by_torch() -> int:
    """Bytes of the libraries of torch, which is not imported for that."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None or "torch" in sys.modules:
        return 0
    return sum(file.stat().st_size for file in Path(found.origin).parent.glob("lib/*.so*"))


def share_one_heap() -> None:
    """Under `ulimit -v`: glibc would set 64 MiB of address space aside for every thread."""
    if any(room.source == ADDRESS_SPACE for room in process_rooms(1)):
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no such group, or no Linux
        return []


def _number(file: Path) -> int | None:
    lines = _lines(file)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None  # "max": no limit
