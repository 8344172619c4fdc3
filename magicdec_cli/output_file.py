"""Whether a file can be written, asked before minutes are spent on what is to be in it."""

from __future__ import annotations

import os
from pathlib import Path

from magicdec.engine.errors import require


def check_output(path: Path, *, new: bool) -> None:
    """new: it must not exist yet. Raises ConfigError for a file that cannot be written."""
    option = f"--output {path}"
    require(not os.path.isdir(path), f"{option} is a folder; give a file")
    exists = os.path.lexists(path)
    require(not (new and exists), f"{option} exists; give another file")
    require(
        os.path.isdir(path.parent), f"{option}: there is no folder {str(path.parent)!r}; create it"
    )
    require(
        os.access(path if exists else path.parent, os.W_OK),
        f"{option} may not be written by you; give another file",
    )
