"""Checks that the files of a converted model are as they were made, by a hash of each.

Small files are hashed whenever the model is opened. Hashing a large one takes a second or more, so
that happens beside the loading, and only where something hints at a change or a day has passed:
the result of a run waits for the verdict, its start does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from magicdec.engine.errors import WrongWeightsError
from magicdec.engine.loading.files import one_line
from magicdec.kernels.cachedir import kept_text

MANIFEST = "entry.json"
CHECKED = "checked.json"  # what large files looked like when their hash was right
LARGE = 64 * 2**20  # bytes
DAY = 86_400.0  # seconds

Seal = list[Any]  # [bytes, sha256]; the hash is None in large files of earlier versions


def sealed(folder: Path) -> dict[str, Seal]:
    """Of every file; the large ones count as checked now."""
    seals, stamps = {}, {}
    for path in sorted(folder.iterdir()):
        if not _own(path.name):
            with path.open("rb") as file:
                os.fsync(file.fileno())  # a hash of what a power cut may still lose proves nothing
                seals[path.name] = [path.stat().st_size, _sha256(file)]
            if path.stat().st_size >= LARGE:
                stamps[path.name] = _stamp(path)
    if stamps:
        _note(folder, stamps)
    return seals


def fits(folder: Path, seals: object) -> bool:
    """Whether the folder has these files and no others: small ones by hash, large ones by size."""
    files = {path.name: path for path in folder.iterdir() if not _own(path.name)}
    if not isinstance(seals, dict) or files.keys() != seals.keys():
        return False
    for name, path in files.items():
        size, digest = seals[name]
        if path.stat().st_size != size:
            return False
        if size < LARGE:
            with path.open("rb") as file:
                if _sha256(file) != digest:
                    return False
    return True


class Check:
    """Holds an entry's large files to their seals, in a thread of its own where that takes time."""

    def __init__(self, entry: Path, manifest: Mapping[str, Any]) -> None:
        self._entry, self._manifest = entry, manifest
        self._wrong: str | None = None
        stamps = _noted(entry)
        self._due = []  # opened here: another process may replace the entry meanwhile
        for name, (size, digest) in manifest["files"].items():
            path = entry / name
            if size >= LARGE and (digest is None or not _fresh(stamps.get(name), path)):
                self._due.append((name, path.open("rb"), _stamp(path)))
        # A daemon: nobody who gives up has to wait for it.
        self._thread = threading.Thread(target=self._run, daemon=True)
        if self._due:
            self._thread.start()

    def require(self, *, wait: bool) -> None:
        """Raises WrongWeightsError once that is known; `wait` for it."""
        if self._due:
            self._thread.join(None if wait else 0)
        if self._wrong is None:
            return
        with suppress(OSError):  # so that the next opening makes the entry anew
            (self._entry / MANIFEST).unlink()
        raise WrongWeightsError(
            f"the converted model {self._entry} is damaged: {self._wrong}; nothing that it says "
            "counts. Run the command again, which makes it anew"
        )

    def _run(self) -> None:
        stamps, seals = _noted(self._entry), dict(self._manifest["files"])
        for name, file, stamp in self._due:
            try:
                with file:
                    found = _sha256(file)
            except OSError as error:
                self._wrong = f"{name} cannot be read ({one_line(error)})"
                return
            if seals[name][1] not in (None, found):
                self._wrong = f"{name} has changed since it was made"
                return
            seals[name], stamps[name] = [seals[name][0], found], stamp
        with suppress(OSError):  # a cache that cannot be written is checked every time
            if seals != self._manifest["files"]:  # an earlier version's: from now on
                _write(self._entry / MANIFEST, {**self._manifest, "files": seals})
            _note(self._entry, stamps)


def _own(name: str) -> bool:
    return name in (MANIFEST, CHECKED) or name.startswith(".")  # half-written ones


def _stamp(path: Path) -> list[Any]:
    """What changes with a file, and when this was seen. A time of change alone can be set back."""
    status = path.stat()
    looks = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return [looks, time.time()]


def _fresh(noted: object, path: Path) -> bool:
    match noted:
        case [list() as looks, int() | float() as seen]:
            now = _stamp(path)
            return bool(looks == now[0]) and 0 <= now[1] - seen < DAY
    return False


def _noted(entry: Path) -> dict[str, Any]:
    try:
        found = json.loads(kept_text(entry / CHECKED))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _note(entry: Path, stamps: Mapping[str, Any]) -> None:
    _write(entry / CHECKED, stamps)


def _write(path: Path, data: Mapping[str, Any]) -> None:
    fresh = path.with_name(f".{path.name}.{threading.get_native_id()}")
    fresh.write_text(json.dumps(data), encoding="utf-8")
    fresh.replace(path)


def _sha256(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()
