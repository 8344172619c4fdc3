"""Builds the C++ kernels on first use, keeps them in the user's cache folder and loads them.

The system's compiler makes a plain shared library that is called through ctypes with pointers and
strides. That takes a few seconds once. An extension against torch's headers would take a minute,
need ninja, and have to be built again for every torch.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from magicdec.kernels import native_library
from magicdec.kernels.cachedir import CacheFolderError
from magicdec.kernels.locks import Timeout, who

SOURCES = Path(__file__).with_name("cpu")
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-w")
#: How to say "for this very CPU"; not every compiler knows every way on every architecture.
TUNING = (("-march=native",), ("-mcpu=native",), ())
COMPILERS = ("c++", "g++", "clang++")
TIMEOUT_SECONDS = 300


class BuildError(Exception):
    """The kernel cannot be built or loaded here; the message says why in one line."""


class Problem(ctypes.Structure):
    """`struct Problem` of cpu/attention.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("batch", "heads", "kv_heads", "fresh", "dim")),
        *((name, ctypes.c_int64) for name in ("window", "tail")),
        ("tree", ctypes.c_void_p),
        ("rows", ctypes.POINTER(ctypes.c_int64)),
        ("lengths", ctypes.POINTER(ctypes.c_int64)),
        ("q_strides", ctypes.c_int64 * 3),
        ("k_strides", ctypes.c_int64 * 3),
        ("v_strides", ctypes.c_int64 * 3),
        ("half", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
    ]


class Storing(ctypes.Structure):
    """`struct Storing` of cpu/pointwise.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("batch", "fresh", "heads", "kv_heads", "dim")),
        *((name, ctypes.c_int64 * 2) for name in ("qk_strides", "v_strides")),
        *((name, ctypes.c_int64 * 3) for name in ("k_strides", "v_cache_strides")),
        ("half", ctypes.c_int64),
        ("threads", ctypes.c_int64),
    ]


def load(progress: Callable[[str], None]) -> ctypes.CDLL:
    """The kernels' library, one in a process. `progress` gets a line when it has to be built first.

    Raises BuildError.
    """
    compiler = find_compiler()
    key = library_key(compiler)
    path = native_library.find(key)
    if path is not None:
        with suppress(OSError):  # made for an older system
            return _open(path)
    path = build(compiler, key, progress, unwanted=path)
    try:
        return _open(path)
    except OSError as error:
        raise BuildError(f"the built kernel does not load: {_first_line(str(error))}") from error


def state() -> str:
    """What a run on a CPU will find: the library as it was built, a damaged one, or none."""
    try:
        key = library_key(find_compiler())
    except BuildError:
        return "none can be built"
    try:
        made, intact = native_library.made(key), native_library.find(key) is not None
    except CacheFolderError:
        return "none can be kept"
    if intact:
        return "intact"
    if made:
        return "damaged, or of an earlier version; the next run builds them again"
    return "not built yet; the first run does that in a few seconds"


def find_compiler() -> tuple[str, ...]:
    """The C++ compiler's command: $CXX, or the first one on the path. Raises BuildError."""
    try:
        wanted = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise BuildError(
            f"CXX={os.environ['CXX']!r} is no command ({error}); correct or unset it"
        ) from None
    for command in [wanted] if wanted else [[name] for name in COMPILERS]:
        found = shutil.which(command[0])
        if found:
            return (found, *command[1:])
    missing = f"no C++ compiler $CXX={wanted[0]}" if wanted else "no C++ compiler"
    raise BuildError(f"{missing} was found; install g++ or set CXX")


def library_key(compiler: Sequence[str]) -> str:
    """What the library for this source, compiler and CPU is kept under.

    The CPU is part of it because a home folder may be shared between machines.
    """
    key = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        key.update(source.read_bytes())
    key.update(repr((tuple(compiler), FLAGS, _cpu())).encode())
    return key.hexdigest()[:20]


def build(
    compiler: Sequence[str], key: str, say: Callable[[str], None], unwanted: Path | None = None
) -> Path:
    """The library, compiled here or meanwhile by another process. Raises BuildError."""

    def compile(target: Path) -> None:
        say("building the CPU kernels (once, a few seconds)")
        _compile(compiler, target)

    try:
        return native_library.install(
            key, compile, say=say, patience=TIMEOUT_SECONDS, unwanted=unwanted
        )
    except Timeout as error:
        lock = native_library.lock_path()
        raise BuildError(f"{who(lock)} has held {lock} for {TIMEOUT_SECONDS} s") from error
    except OSError as error:
        folder = native_library.libraries_folder()
        raise BuildError(f"cannot write to {folder}: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{compiler[0]} took more than {TIMEOUT_SECONDS} s") from error


def _compile(compiler: Sequence[str], target: Path) -> None:
    sources = [str(source) for source in sorted(SOURCES.glob("*.cpp"))]
    scratch = os.environ | {"TMPDIR": str(target.parent)}  # it goes with what a killed build left
    for tuning in TUNING:
        command = [*compiler, *FLAGS, *tuning, *sources, "-o", str(target)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=scratch
        )
        if done.returncode == 0:
            return
    raise BuildError(f"{compiler[0]} failed: {_first_line(done.stderr)}")


def _open(path: Path) -> ctypes.CDLL:
    import torch  # noqa: F401  its OpenMP runtime must be there before this library asks for it

    loaded = ctypes.CDLL(str(path))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    problem, storing = ctypes.POINTER(Problem), ctypes.POINTER(Storing)
    for function in (loaded.magicdec_attention_workspace, loaded.magicdec_mass_workspace):
        function.argtypes, function.restype = [problem], integer
    for name, arguments in {
        "attention": [problem, *[pointer] * 4],
        "rms_norm": [*[pointer] * 3, integer, integer, ctypes.c_float, integer],
        "gate": [pointer, pointer, integer, integer, integer],
        "spread": [*[pointer] * 3, *[integer] * 3],
        "restore": [*[pointer] * 4, *[integer] * 3],
        "store": [storing, *[pointer] * 8],
        "key_mass": [problem, *[pointer] * 3, integer],
        "code_mass": [problem, pointer, pointer, *[integer] * 3, pointer, integer],
        "best": [*[pointer] * 3, *[integer] * 7],
        "gather": [*[pointer] * 3, *[integer] * 7],
    }.items():
        function = getattr(loaded, f"magicdec_{name}")
        function.argtypes, function.restype = arguments, None
    return loaded


@functools.cache
def _cpu() -> str:
    """Architecture and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    sets = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {sets or platform.processor()}"


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
