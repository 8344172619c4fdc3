"""The tightest bound on memory: the machine, groups of both kinds, limits of the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.memory.free import MIB, Room, host_room

V2 = "30 23 0:26 {shown} /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "34 31 0:30 {shown} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {shown} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """A root with the given mounts, membership and files of groups."""

    def make(mounts: str, membership: str, files: dict[str, object]) -> Path:
        proc = tmp_path / "proc" / "self"
        proc.mkdir(parents=True)
        (proc / "mountinfo").write_text(mounts)
        (proc / "cgroup").write_text(membership)
        for name, content in files.items():
            file = tmp_path / "sys/fs/cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")
        return tmp_path

    return make


def stat(inactive: int, active: int = 0, prefix: str = "", slab: int = 0) -> str:
    return (
        f"anon 1\nfile {inactive + active}\ninactive_file 1\nactive_file 1\n" * bool(prefix)
        + f"{prefix}inactive_file {inactive}\n{prefix}active_file {active}\nunknown\n"
        + f"slab_reclaimable {slab}"
    )


def group(limit: object, used: int, stat: str = "", high: object = "max") -> dict[str, object]:
    """Of version 2, in MiB."""
    limit, high = (n * MIB if isinstance(n, int) else n for n in (limit, high))
    return {
        "memory.max": limit, "memory.high": high, "memory.current": used * MIB, "memory.stat": stat,
    }  # fmt: skip


def at(place: str, files: dict[str, object]) -> dict[str, object]:
    return {f"{place}/{name}": content for name, content in files.items()}


def test_without_groups_the_machine_counts(tree):
    room = host_room(root=tree("", "", {}))
    assert room.source == "the machine's own count" and room.limit == psutil.virtual_memory().total
    assert 0 < room.free < room.limit


def test_files_that_a_group_read_are_free(tree):
    """A container that has read its model twice: all of its memory is page cache."""
    files = group(100, 100, stat(inactive=60 * MIB, active=25 * MIB, slab=5 * MIB))
    root = tree(V2.format(shown="/"), "0::/\n", at(".", files))
    assert host_room(root=root) == Room(90 * MIB, 100 * MIB, "/sys/fs/cgroup/memory.max")


@pytest.mark.parametrize(
    ("inner", "outer", "free", "by"),
    [
        (group(80, 10), group(100, 60), 40, "outer/memory.max"),
        (group(80, 50), group(100, 60), 30, "outer/inner/memory.max"),
        (group("max", 50), group(100, 60), 40, "outer/memory.max"),
        (group(80, 10, high=20), group("max", 60), 10, "outer/inner/memory.high"),
        (group(80, 90), group("max", 60), 0, "outer/inner/memory.max"),
    ],
)
def test_the_tightest_of_nested_groups_counts(tree, inner, outer, free, by):
    root = tree(
        V2.format(shown="/"), "0::/outer/inner\n", at("outer", outer) | at("outer/inner", inner)
    )
    room = host_room(root=root)
    assert (room.free, room.source) == (free * MIB, f"/sys/fs/cgroup/{by}")


@pytest.mark.parametrize(
    ("shown", "member"),
    [("/", "/"), ("/docker/1f", "/docker/1f"), ("/", "/docker/1f"), ("/docker/1f", "/../x")],
)
def test_a_container_finds_its_own_group(tree, shown, member):
    """With a namespace of its own, without one, and where only part of the tree is mounted."""
    root = tree(V2.format(shown=shown), f"0::{member}\n", at(".", group(100, 70)))
    assert host_room(root=root).free == 30 * MIB


def test_version_1_and_both_versions_side_by_side(tree):
    """The unified tree of a hybrid system has no memory files."""
    used = {
        "memory.limit_in_bytes": 100 * MIB, "memory.usage_in_bytes": 95 * MIB,
        "memory.stat": stat(40 * MIB, 5 * MIB, prefix="total_"),
    }  # fmt: skip
    unlimited = {
        "memory.limit_in_bytes": 9223372036854771712, "memory.usage_in_bytes": 2**31,
        "memory.stat": stat(0, prefix="total_"),
    }  # fmt: skip
    files = at("memory/a/b", used) | at("memory/a", unlimited) | at("memory", unlimited)
    mounts = V1.format(shown="/") + V2.format(shown="/").replace("cgroup rw", "cgroup/unified rw")
    root = tree(mounts, "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n", files)
    place = "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes"
    assert host_room(root=root) == Room(50 * MIB, 100 * MIB, place)


def test_an_unlimited_or_unreadable_group_leaves_the_machine(tree):
    files = at("a", group("max", 10)) | {"memory.max": "nonsense", "memory.current": ""}
    assert (
        host_room(root=tree(V2.format(shown="/"), "0::/a\n", files)).source
        == "the machine's own count"
    )


LIMITED = """
import resource, sys, psutil
from magicdec.engine.errors import OutOfMemoryError
from magicdec.engine.memory.free import MIB, host_room, require_room
kind, taken, left = sys.argv[1:]
used = getattr(psutil.Process().memory_info(), taken)
limit = used + int(left) * MIB
resource.setrlimit(getattr(resource, kind), (limit, limit))
room = host_room(threads=2)
assert room.limit == limit, room
print(room.source, room.free // MIB)
try:
    require_room(threads=2)
except OutOfMemoryError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("kind", "taken", "source"),
    [("RLIMIT_AS", "vms", "ulimit -v"), ("RLIMIT_DATA", "data", "ulimit -d")],
)
def test_limits_of_the_process(kind, taken, source):
    """Some of what is left is for libraries and threads, which cannot do without."""

    def said(left: int) -> list[str]:
        command = [sys.executable, "-c", LIMITED, kind, taken, str(left)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    (line,) = said(1000)
    name, free = line.rsplit(" ", 1)
    assert name == source and 800 < int(free) < 1000
    line, refused = said(60)
    assert line == f"{source} 0" and f"MiB that {source} allows" in refused


def test_doctor_names_the_source(capsys):
    assert run_command_line(["doctor", "--format", "csv"]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("memory,")]
    assert " free of " in line and f"by {host_room().source}" in line
