"""A file that is there whole, or as it was before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from magicdec.profiles.storage.locking import lock

PREFIX, LOCK = ".magicdec-", ".magicdec-lock"


@contextmanager
def replacing(path: Path, *, kept: bool = False) -> Iterator[Path]:
    """Yields a file to write, which takes the place of `path` in one step at the end.

    An error leaves `path` as it was, and so does an interrupt, unless what is finished by then is
    to be `kept`. A link stays one: what it points to is replaced. What cannot be replaced, a pipe,
    a device, or a file in a folder that is not the user's, is yielded itself. What a killed process
    left beside it goes. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    there = path.exists()
    if there and not (path.is_file() and os.access(target.parent, os.W_OK)):
        yield path
        return
    _sweep(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=PREFIX) as folder:
        new = Path(folder) / f"{LOCK}-new"
        with new.open("wb") as held:
            lock(held)
            new.rename(Path(folder) / LOCK)  # never there without being held
            made = Path(folder) / target.name
            try:
                yield made
            except KeyboardInterrupt:
                if kept and made.exists():
                    _replace(target, made, there)
                raise
            _replace(target, made, there)


def _sweep(parent: Path) -> None:
    """Deletes folders whose lock nobody holds: a process that was killed let go of it."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError), (folder / LOCK).open("rb") as file:
            if lock(file, unknown=False):
                shutil.rmtree(folder, ignore_errors=True)


def _replace(target: Path, made: Path, there: bool) -> None:
    if there:
        shutil.copymode(target, made)
    os.replace(made, target)
