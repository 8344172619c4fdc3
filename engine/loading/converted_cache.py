"""Converted models, kept once in the user's cache.

An entry is a folder that appears complete or not at all: it is built beside its place and renamed.
A file lock per entry lets one process build while others wait for the result.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.file_hashes import MANIFEST, Check, fits, sealed
from magicdec.engine.loading.files import one_line, read_json
from magicdec.kernels.cachedir import OVERRIDE, cache_root, elsewhere, kept_text
from magicdec.kernels.locks import Timeout, held, who

SPEC = "spec.json"
TEMPORARY = ".tmp"  # behind an entry's name, while it is built
FORMAT = 1  # raise it when converted files change

_PATIENCE = 600.0  # seconds in which whoever makes an entry writes nothing

Source = dict[str, Any]


def models_folder() -> Path:
    return cache_root() / "models"


def lock_path(entry: Path) -> Path:
    return entry.parent / f".{entry.name}.lock"


def is_complete(entry: Path, source: Source) -> bool:
    """Whether `entry` was made from `source` and its files are as they were written."""
    try:
        manifest = json.loads(kept_text(entry / MANIFEST))
        seals = manifest["files"]
        return bool(manifest == _manifest(source, seals)) and fits(entry, seals)
    # Whatever another file holds: it is none that was written here.
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def check(entry: Path) -> Check:
    """Begins to hold the large files of a complete entry to their hashes. Raises ModelError."""
    try:
        return Check(entry, read_json(entry / MANIFEST))
    except OSError as error:  # cleared, or made anew, at this moment
        raise ModelError(f"{entry} cannot be read ({one_line(error)}); try again") from None


def ensure(
    entry: Path, source: Source, build: Callable[[Path], None], say: Callable[[str], None]
) -> None:
    """Has `build` fill `entry` unless it is complete. `say` hears whom this has to wait for.

    Raises ModelError when the cache cannot be written, and what `build` raises.
    """
    if not is_complete(entry, source):
        rebuild(entry, source, build, say, unless=lambda: is_complete(entry, source))


def rebuild(
    entry: Path,
    source: Source,
    build: Callable[[Path], None],
    say: Callable[[str], None],
    unless: Callable[[], bool],
) -> None:
    """Replaces `entry`, unless another process has done so by the time this one may."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with held(
            lock_path(entry), doing=f"is making {entry.name}", say=say, patience=_PATIENCE,
            progress=lambda: _written(entry),
        ):  # fmt: skip
            if unless():
                return
            for left_over in _scratch(entry):  # of a killed process
                shutil.rmtree(left_over, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                dir=entry.parent, prefix=f".{entry.name}{TEMPORARY}", ignore_cleanup_errors=True
            ) as temporary:
                _build_and_swap(entry, source, build, Path(temporary))
    except Timeout:  # an OSError, too
        lock = lock_path(entry)
        raise ModelError(
            f"{who(lock)} has held {lock} for {_PATIENCE / 60:.0f} minutes and written nothing; "
            f"end it, or set {OVERRIDE} to another folder"
        ) from None
    except OSError as error:
        raise ModelError(
            f"cannot write to the cache {entry.parent} ({error.strerror or one_line(error)}); "
            f"{elsewhere(error)}"
        ) from None


def _scratch(entry: Path) -> list[Path]:
    return list(entry.parent.glob(f".{entry.name}{TEMPORARY}*"))


def _written(entry: Path) -> list[tuple[str, int]]:
    """Changes while another process fetches or converts."""
    found = []
    for folder in _scratch(entry):
        for parent, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):  # moved meanwhile
                    path = os.path.join(parent, name)
                    found.append((path, os.stat(path).st_mtime_ns))
    return sorted(found)


def _build_and_swap(
    entry: Path, source: Source, build: Callable[[Path], None], temporary: Path
) -> None:
    fresh, old = temporary / "new", temporary / "old"
    fresh.mkdir()
    build(fresh)
    manifest = json.dumps(_manifest(source, sealed(fresh)))
    (fresh / MANIFEST).write_text(manifest, encoding="utf-8")
    if entry.exists():
        entry.rename(old)  # a folder that is not empty cannot be replaced in one step
    fresh.rename(entry)


def _manifest(source: Source, seals: Any) -> dict[str, Any]:
    return {"format": FORMAT, "source": source, "files": seals}
