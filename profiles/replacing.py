"""A file that is there whole, or as it was before."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, kept: bool = False) -> Iterator[Path]:
    """Yields a file to write, which takes the place of `path` in one step at the end.

    An error leaves `path` as it was, and so does an interrupt, unless what is finished by then is
    to be `kept`. A link stays one: what it points to is replaced. What cannot be replaced, a pipe,
    a device, or a file in a folder that is not the user's, is yielded itself. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    there = path.exists()
    if there and not (path.is_file() and os.access(target.parent, os.W_OK)):
        yield path
        return
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".magicdec-") as folder:
        made = Path(folder) / target.name
        try:
            yield made
        except KeyboardInterrupt:
            if kept and made.exists():
                _replace(target, made, there)
            raise
        _replace(target, made, there)


def _replace(target: Path, made: Path, there: bool) -> None:
    if there:
        shutil.copymode(target, made)
    os.replace(made, target)
