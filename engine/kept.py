"""What this program keeps in the user's cache, and clearing it. Imports no torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from magicdec.engine.errors import MagicdecError
from magicdec.engine.loading.cache import models_folder
from magicdec.engine.loading.files import one_line
from magicdec.engine.prefill_files import ABOUT, SUFFIX, folder_lock, prefills_folder


@dataclass(frozen=True, slots=True)
class Kept:
    """A converted model, or the stored prefills of one model in one precision."""

    kind: Literal["prefills", "model"]
    name: str
    details: str
    bytes: int
    used: float | None  # when a prefill was last read or written, in seconds since 1970
    path: Path


def list_kept() -> list[Kept]:
    """Prefills first, each kind by name."""
    return [*map(_prefills, _folders(prefills_folder())), *map(_model, _folders(models_folder()))]


def clear_prefills() -> int:
    """Deletes every stored prefill and returns the bytes freed. Raises MagicdecError.

    A run that is going on computes what it would have read.
    """
    root = prefills_folder()
    if not root.exists():
        return 0
    with _clearing(root, folder_lock(root)):
        return sum(_remove(folder) for folder in _folders(root))


def clear_models() -> int:
    """Deletes every converted model and returns the bytes freed. Raises MagicdecError.

    The next use of a model fetches or converts it again; a run that has it open is not disturbed.
    """
    freed = 0
    for folder in _folders(models_folder()):
        lock = FileLock(folder.parent / f".{folder.name}.lock", timeout=1)
        with _clearing(folder, lock):
            freed += _remove(folder)
    return freed


@contextmanager
def _clearing(path: Path, lock: FileLock) -> Iterator[None]:
    try:
        with lock:
            yield
    except Timeout:
        raise MagicdecError(
            f"{path} is being written by another process; try again when that has finished"
        ) from None
    except OSError as error:
        raise MagicdecError(f"cannot clear {path} ({one_line(error)}); delete it by hand") from None


def _remove(folder: Path) -> int:
    size = _bytes(folder)
    shutil.rmtree(folder)
    return size


def _folders(root: Path) -> list[Path]:
    try:
        if not root.is_dir():
            return []
        return sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    except OSError as error:
        raise MagicdecError(
            f"cannot look into {root} ({one_line(error)}); check its permissions"
        ) from None


def _prefills(folder: Path) -> Kept:
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        name = str(about["model"])
        details = f"{about['dtype']}, KV {about['kv_dtype']}, {about['attention']}"
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # torn, or no such file
        name, details = "unknown", ""
    used = _over(folder, lambda f: f.stat().st_mtime if f.suffix == SUFFIX else 0.0)
    return Kept("prefills", name, details, _bytes(folder), max(used, default=None), folder)


def _model(folder: Path) -> Kept:
    return Kept("model", folder.name, "converted", _bytes(folder), None, folder)


def _bytes(folder: Path) -> int:
    return int(sum(_over(folder, lambda file: file.stat().st_size)))


def _over(folder: Path, measure: Callable[[Path], float]) -> list[float]:
    """`measure` of each file that does not vanish meanwhile."""
    found = []
    for file in folder.iterdir():
        try:
            found.append(measure(file))
        except OSError:
            continue
    return found
