"""The folder of stored prefills: sealed files under one size limit, oldest use evicted first.

A file appears complete or not at all (written beside its place, then renamed) and carries a
checksum over its contents. Nothing here imports torch, so that listing stays cheap.

Format: magic, key (16 bytes), CRC-32 of the key and the data (little endian), 4 bytes of padding,
the data. CRC-32 finds damage, which is all that is asked of it, at several GB/s.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from magicdec.kernels.cachedir import cache_root
from magicdec.kernels.locks import held

SUFFIX = ".kv"
ABOUT = "about.json"
HEADER = 32  # bytes
_MAGIC = b"MDKV0001"
_TEMPORARY = ".tmp-"
PATIENCE = 10.0  # seconds: no process stores for that long at a time


class Damaged(Exception):
    """A stored file is not as it was written."""


def prefills_folder() -> Path:
    return cache_root() / "prefills"


def lock_path(root: Path) -> Path:
    """Held by whoever writes, evicts or clears. Readers need none: files change only whole."""
    return root / ".lock"


class PrefillFiles:
    """Files by key (32 hexadecimal digits) in `prefills_folder()/group`.

    `limit` bounds the bytes of all groups together. What another process evicts meanwhile is no
    error for a reader; writing raises OSError where the folder cannot be written.
    """

    def __init__(self, group: str, limit: int) -> None:
        self.root = prefills_folder()
        self.folder, self.limit = self.root / group, limit

    def path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def size(self, key: str) -> int:
        """Bytes of data in the file, 0 when there is no file."""
        try:
            return max(0, self.path(key).stat().st_size - HEADER)
        except OSError:
            return 0

    def read(self, key: str) -> memoryview | None:
        """The data of a file, or None when there is no file. Raises Damaged."""
        try:
            with self.path(key).open("rb", buffering=0) as file:
                content = memoryview(bytearray(os.fstat(file.fileno()).st_size))
                count = file.readinto(content) or 0
        except OSError:
            return None
        data = content[HEADER:count]
        if content[:HEADER] != _header(key, [data]):
            raise Damaged
        return data

    def write(self, key: str, data: Sequence[memoryview]) -> None:
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=_TEMPORARY)
        try:
            with os.fdopen(handle, "wb", buffering=0) as file:
                for part in (memoryview(_header(key, data)), *data):
                    _write_all(file.fileno(), part)
            os.replace(name, self.path(key))
        except BaseException:  # an interrupt, too, leaves nothing behind
            with suppress(OSError):
                os.unlink(name)
            raise

    def drop(self, key: str) -> None:
        with suppress(OSError):
            self.path(key).unlink()

    def touch(self, keys: Sequence[str]) -> None:
        """Marks files as used now, the first one last: a chain is evicted from its end."""
        now = time.time_ns()
        for age, key in enumerate(keys):
            with suppress(OSError):
                os.utime(self.path(key), ns=(now - age, now - age))

    @contextmanager
    def writing(
        self,
        about: dict[str, Any],
        say: Callable[[str], None] = lambda _what: None,
        patience: float = PATIENCE,
    ) -> Iterator[None]:
        """The right to write and evict. Raises Timeout when another process keeps it for more
        than `patience` seconds; `say` hears of the wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with held(lock_path(self.root), doing="is storing prefills", say=say, patience=patience):
            if not (self.folder / ABOUT).exists():
                (self.folder / ABOUT).write_text(json.dumps(about), encoding="utf-8")
            yield

    def make_room(self, needed: int, keep: Sequence[str]) -> None:
        """Evicts what was used longest ago, never `keep`, until `needed` more bytes fit. Inside of
        `writing`: what is half written then is a killed process's."""
        for left_over, _ in _files(self.root, f"{_TEMPORARY}*"):
            left_over.unlink(missing_ok=True)
        kept = {self.path(key) for key in keep}
        files = _files(self.root, f"*{SUFFIX}")
        excess = sum(status.st_size for _, status in files) + needed - self.limit
        for path, status in sorted(files, key=lambda file: file[1].st_mtime_ns):
            if excess <= 0:
                break
            if path not in kept:
                path.unlink(missing_ok=True)
                excess -= status.st_size


def _header(key: str, data: Sequence[memoryview]) -> bytes:
    name = bytes.fromhex(key)
    checksum = zlib.crc32(name)
    for part in data:
        checksum = zlib.crc32(part, checksum)
    return (_MAGIC + name + checksum.to_bytes(4, "little")).ljust(HEADER, b"\0")


def _write_all(file: int, data: memoryview) -> None:
    """os.write may write less than it is given, on a full disk for one."""
    while len(data):
        data = data[os.write(file, data) :]


def _files(root: Path, pattern: str) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in root.glob(f"*/{pattern}"):
        with suppress(OSError):  # gone meanwhile
            found.append((path, path.stat()))
    return found
