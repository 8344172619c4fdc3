"""Compiled kernels in the cache: damage is found before it is loaded, and mended."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.session import open_session
from magicdec.kernels import native_build, native_library
from magicdec.kernels.native_build import BuildError

LOAD = "from magicdec.kernels import native_build; native_build.load(print)"


@pytest.fixture(scope="module")
def built() -> Path:
    """A library that was built once for all tests."""
    try:
        compiler = native_build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    native_build.load(lambda _what: None)
    path = native_library.find(native_build.library_key(compiler))
    assert path is not None
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "native"


@pytest.fixture
def copier(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler in no time: it copies what was built before, and counts."""
    shutil.copy(built, tmp_path / "made.so")
    return _compiler(
        tmp_path, f'echo . >>{tmp_path}/calls\nfor last; do :; done\ncp {tmp_path}/made.so "$last"',
        monkeypatch,
    )  # fmt: skip


def _compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    return folder / "calls"


def load() -> list[str]:
    said: list[str] = []
    native_build.load(said.append)
    return said


def only(cache: Path) -> Path:
    (path,) = cache.glob("*.so")
    return path


def flip(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def put(path: Path, content: bytes) -> None:
    """A new file: this very process has the old one loaded."""
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, cut])
def test_no_damage_is_loaded(cache, copier, damage):
    load()
    path, key = only(cache), native_build.library_key(native_build.find_compiler())
    whole, rng = path.read_bytes(), random.Random(7)
    for _ in range(50):
        put(path, damage(whole, rng))
        assert native_library.find(key) is None and native_build.state().startswith("damaged")
    put(path, whole)
    assert native_library.find(key) == path and native_build.state() == "intact"


@pytest.mark.parametrize("content", [b"", b"not a library", None])
def test_a_damaged_library_is_built_again_and_the_next_run_finds_it(cache, copier, content):
    assert load() == ["building the CPU kernels (once, a few seconds)"]
    path = only(cache)
    put(path, path.read_bytes()[:-1] if content is None else content)
    assert len(load()) == 1 and load() == []
    assert native_library.is_intact(only(cache))
    assert copier.read_text().count(".") == 2


def test_a_flipped_bit_in_the_real_one_ends_no_process(cache, built, copier):
    """What it did was SIGSEGV, SIGBUS or another result; a process of its own shows it."""
    load()
    put(only(cache), only(cache).read_bytes()[:5000])  # dlopen of this is SIGBUS
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("building")


def test_an_intact_file_that_does_not_load_is_built_again(cache, copier):
    load()
    only(cache).unlink()
    key, content = native_build.library_key(native_build.find_compiler()), b"for an older system"
    digest = hashlib.sha256(content).hexdigest()[:32]
    (cache / f"kernels-{key}-{digest}.so").write_bytes(content)
    assert len(load()) == 1 and load() == []


def test_one_of_an_earlier_version_is_replaced(cache, copier):
    load()
    key = native_build.library_key(native_build.find_compiler())
    only(cache).rename(cache / f"kernels-{key}.so")
    assert "earlier version" in native_build.state()
    assert len(load()) == 1 and native_build.state() == "intact"
    assert key in only(cache).name


def test_who_uses_the_old_one_keeps_it(cache, copier):
    """A file that is mapped and cut short in place ends its users with SIGBUS."""
    load()
    path = only(cache)
    put(path, flip(path.read_bytes(), random.Random(1)))
    with path.open("rb") as used:
        before = used.read()
        load()
        used.seek(0)
        assert used.read() == before and os.fstat(used.fileno()).st_nlink == 0
    assert native_library.is_intact(only(cache))


def test_the_content_is_on_disk_before_it_has_its_name(cache, copier, monkeypatch):
    order: list[str] = []

    def noting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: (order.append(name), real(*arguments))[1]

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    load()
    assert order == ["fsync", "replace", "fsync"]


def test_what_a_killed_build_left_is_gone_after_the_next(cache, tmp_path, built, monkeypatch):
    _compiler(tmp_path, f"echo $$ >{tmp_path}/pid; exec sleep 60", monkeypatch)
    with subprocess.Popen([sys.executable, "-c", LOAD], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert list(cache.glob(".build-*"))
    shutil.copy(built, tmp_path / "made.so")
    _compiler(tmp_path, f'for last; do :; done\ncp {tmp_path}/made.so "$last"', monkeypatch)
    load()
    assert sorted(path.name for path in cache.iterdir()) == [".lock", only(cache).name]


def test_a_build_that_another_process_does_is_waited_for(cache, copier, hold, monkeypatch):
    monkeypatch.setattr(native_build, "TIMEOUT_SECONDS", 0.1)
    said: list[str] = []
    with (
        hold(native_library.lock_path()) as pid,
        pytest.raises(BuildError, match=rf"process {pid} has held .*\.lock for 0.1 s"),
    ):
        native_build.load(said.append)
    assert said[0] == f"waiting for process {pid}, which is building the CPU kernels"
    assert load() == ["building the CPU kernels (once, a few seconds)"]


def test_no_phase_of_a_run_has_the_wait_for_a_build(cache, copier, hold, monkeypatch, checkpoint):
    monkeypatch.setattr(native_build, "TIMEOUT_SECONDS", 0.3)
    began = time.perf_counter()
    with hold(native_library.lock_path()):
        session = open_session(str(checkpoint), device="cpu")
    assert session.backend.name == "sdpa" and "has held" in session.notices()[0]
    assert 0 <= session._opening <= time.perf_counter() - began - 0.3


def test_doctor_sees_the_state(cache, copier, capsys):
    def kernels() -> str:
        assert run_command_line(["doctor", "--format", "csv"]) == 0
        (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("kernels,")]
        return line

    assert "not built yet" in kernels()
    load()
    assert "intact" in kernels()
    put(only(cache), b"")
    assert "damaged" in kernels()


def test_cache_clear_takes_kernels_and_what_builds_left(cache, copier, capsys, hold):
    load()
    (cache / ".build-abc").mkdir()
    (cache / ".build-abc" / "half.so").write_bytes(bytes(1000))
    assert run_command_line(["cache", "list", "--format", "csv"]) == 0
    assert "compiled" in capsys.readouterr().out
    with hold(native_library.lock_path()) as pid:
        assert run_command_line(["cache", "clear", "--kernels"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"is being written by process {pid}" in line
    assert run_command_line(["cache", "clear", "--models"]) == 0 and only(cache)
    assert run_command_line(["cache", "clear"]) == 0
    assert "kernels: " in capsys.readouterr().out
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_doctor_goes_on_where_no_folder_can_be_used(copier, monkeypatch, capsys):
    monkeypatch.setenv("MAGICDEC_CACHE_DIR", "/" + "x" * 300)
    assert run_command_line(["doctor", "--format", "csv"]) == 0
    assert "kernels,none can be kept" in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="devices are files on POSIX alone")
def test_a_library_that_is_no_file_is_not_read(cache: Path, tmp_path: Path) -> None:
    device, pipe = tmp_path / "kernels-a-b.so", tmp_path / "kernels-a-c.so"
    device.symlink_to("/dev/zero")  # has no end
    os.mkfifo(pipe)  # has no beginning
    assert not native_library.is_intact(device) and not native_library.is_intact(pipe)
