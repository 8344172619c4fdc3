"""Lists and clears what this program keeps in the user's cache. Imports no torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from magicdec.engine.cache.prefill_files import ABOUT, SUFFIX, lock_path, prefills_folder
from magicdec.engine.errors import MagicdecError
from magicdec.engine.loading.converted_cache import TEMPORARY, models_folder
from magicdec.engine.loading.converted_cache import lock_path as models_lock
from magicdec.engine.loading.files import one_line
from magicdec.kernels import native_library
from magicdec.kernels.cachedir import kept_text
from magicdec.kernels.locks import Timeout, held, who

_PATIENCE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Kept:
    """A converted model, the stored prefills of one model in one precision, or compiled kernels."""

    kind: Literal["prefills", "model", "kernels"]
    name: str
    details: str
    bytes: int
    used: float | None  # when a prefill was last read or written, in seconds since 1970
    path: Path


def list_kept() -> list[Kept]:
    """Prefills first, kernels last, each kind by name."""
    return [
        *map(_prefills, _folders(prefills_folder())),
        *map(_model, _folders(models_folder())),
        *map(_kernels, native_library.libraries()),
    ]


def clear_prefills() -> int:
    """Deletes every stored prefill and returns the bytes freed. Raises MagicdecError.

    A run that is going on computes what it would have read.
    """
    root = prefills_folder()
    if not root.exists():
        return 0
    with _clearing(root, lock_path(root)):
        return sum(_remove(folder) for folder in _folders(root))


def clear_models() -> int:
    """Deletes every converted model and returns the bytes freed. Raises MagicdecError.

    The next use of a model fetches or converts it again; a run that has it open is not disturbed.
    """
    freed, root = 0, models_folder()
    entries = {folder: folder for folder in _folders(root)}
    for left_over in filter(Path.is_dir, root.glob(f".*{TEMPORARY}*")):  # of a killed process
        entries[left_over] = root / left_over.name[1:].rpartition(TEMPORARY)[0]
    for folder, entry in entries.items():
        with _clearing(folder, models_lock(entry)):
            freed += _remove(folder)
    return freed


def clear_kernels() -> int:
    """Deletes the compiled kernels and returns the bytes freed. Raises MagicdecError.

    The next run on a CPU builds them again; one that has them open is not disturbed.
    """
    folder = native_library.libraries_folder()
    if not folder.exists():
        return 0
    with _clearing(folder, native_library.lock_path()):
        return native_library.clear()


@contextmanager
def _clearing(path: Path, lock: Path) -> Iterator[None]:
    try:
        with held(lock, doing="is writing", say=lambda _what: None, patience=_PATIENCE):
            yield
    except Timeout:
        raise MagicdecError(
            f"{path} is being written by {who(lock)}; try again when that has finished"
        ) from None
    except OSError as error:
        reason = error.strerror or one_line(error)
        raise MagicdecError(
            f"cannot clear {path} ({reason}); check its permissions, or delete it by hand"
        ) from None


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
        about = json.loads(kept_text(folder / ABOUT))
        name = str(about["model"])
        details = f"{about['dtype']}, KV {about['kv_dtype']}, {about['attention']}"
    except (OSError, ValueError, LookupError, TypeError, RecursionError):  # torn, or no such file
        name, details = "unknown", ""
    used = _over(folder, lambda f: f.stat().st_mtime if f.suffix == SUFFIX else 0.0)
    return Kept("prefills", name, details, _bytes(folder), max(used, default=None), folder)


def _model(folder: Path) -> Kept:
    return Kept("model", folder.name, "converted", _bytes(folder), None, folder)


def _kernels(file: Path) -> Kept:
    state = "compiled" if native_library.is_intact(file) else "damaged, or of an earlier version"
    size = file.stat().st_size if file.exists() else 0
    return Kept("kernels", "-".join(file.stem.split("-")[:2]), state, size, None, file)


def _bytes(folder: Path) -> int:
    return int(sum(_over(folder, lambda file: file.stat().st_size if file.is_file() else 0)))


def _over(folder: Path, measure: Callable[[Path], float]) -> list[float]:
    """`measure` of each file that does not vanish meanwhile."""
    found = []
    for file in folder.rglob("*"):
        try:
            found.append(measure(file))
        except OSError:
            continue
    return found
