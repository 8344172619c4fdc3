"""The compiled kernels in the user's cache folder: verified when read, replaced whole.

A library's name ends in the hash of its content. It is therefore one file that appears in one
step, two processes cannot leave the hash of one beside the library of the other, and one that is
in use by somebody is never written to. Loading a damaged library would end the process, or
compute with flipped bits; hashing its 200 kB takes less than a millisecond.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from magicdec.kernels.cachedir import cache_root
from magicdec.kernels.locks import held

SUFFIX = ".so"
_PREFIX = "kernels-"
_BUILD = ".build-"
_HASH_DIGITS = 32
_LARGEST = 64 * 2**20  # bytes; ours take 200 kB


def libraries_folder() -> Path:
    return cache_root() / "native"


def lock_path() -> Path:
    return libraries_folder() / ".lock"


def find(key: str) -> Path | None:
    """The library made under `key`, if there is one that is as it was written."""
    return next((path for path in made(key) if is_intact(path)), None)


def is_intact(path: Path) -> bool:
    """Whether the content is what the name says. Earlier versions' names said nothing of it."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:  # a device may have no end
            return False
        content = path.read_bytes()
    except OSError:
        return False
    return path.stem.rpartition("-")[2] == _hash(content)


def libraries() -> list[Path]:
    """All that are kept, for whatever compiler, CPU and version; damaged ones too."""
    return sorted(libraries_folder().glob(f"{_PREFIX}*{SUFFIX}"))


def install(
    key: str,
    compile: Callable[[Path], None],
    *,
    say: Callable[[str], None],
    patience: float,
    unwanted: Path | None = None,
) -> Path:
    """Has `compile` write the library unless another process has made it meanwhile.

    unwanted: an intact one that does not load, to be made anew.
    Raises OSError, what `compile` raises, and Timeout when another process builds for too long.
    """
    folder = libraries_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with held(lock_path(), doing="is building the CPU kernels", say=say, patience=patience):
        found = find(key)
        if found is not None and found != unwanted:
            return found
        for left_over in folder.glob(f"{_BUILD}*"):  # of a killed build: we hold the lock
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            dir=folder, prefix=_BUILD, ignore_cleanup_errors=True
        ) as scratch:
            fresh = Path(scratch) / f"kernels{SUFFIX}"
            compile(fresh)
            path = folder / f"{_PREFIX}{key}-{_hash(_settled(fresh))}{SUFFIX}"
            os.replace(fresh, path)
        _settle(folder)
        for other in made(key):  # damaged; whoever has one loaded keeps it
            if other != path:
                other.unlink(missing_ok=True)
        return path


def clear() -> int:
    """Deletes all that is kept and what killed builds left; returns the bytes freed.

    Call it under the lock. Who has a library loaded keeps it. Raises OSError.
    """
    folder, freed = libraries_folder(), 0
    for path in libraries():
        freed += path.stat().st_size
        path.unlink()
    for left_over in (*folder.glob(f"{_BUILD}*"), *folder.glob("tmp*")):  # tmp: earlier versions'
        freed += sum(file.stat().st_size for file in left_over.rglob("*") if file.is_file())
        shutil.rmtree(left_over)
    return freed


def made(key: str) -> list[Path]:
    """All of that key, whether they are intact or not."""
    return sorted(libraries_folder().glob(f"{_PREFIX}{key}*{SUFFIX}"))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]


def _settled(file: Path) -> bytes:
    """The content, once the disk has it: a name must not outlive its content in a power cut."""
    with file.open("rb") as data:
        os.fsync(data.fileno())
        return data.read()


def _settle(folder: Path) -> None:
    with suppress(OSError):  # not every file system has folders that can be flushed
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
