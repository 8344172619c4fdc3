"""Where files that can be made again are kept."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import platformdirs

OVERRIDE = "MAGICDEC_CACHE_DIR"
_LARGEST = 2**24  # bytes
_FULL = (errno.ENOSPC, errno.EDQUOT)
_CLOSED = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)


class CacheFolderError(OSError):
    """The folder cannot even be looked into; the message says why and what to do, in one line."""


def cache_root() -> Path:
    """The user's cache folder for this program, or $MAGICDEC_CACHE_DIR; it may not exist yet.

    Raises CacheFolderError. That a folder cannot be written is for those to say who need to.
    """
    override = os.environ.get(OVERRIDE)
    try:
        if override:
            root = Path(override).expanduser()
        else:
            root = Path(platformdirs.user_cache_dir("magicdec", appauthor=False))
        os.stat(root / "any")  # what it holds can be seen, or that it does not
    except RuntimeError:
        raise _unusable(str(override), "nobody here is called so") from None
    except OSError as error:
        if error.errno in _CLOSED:
            raise _unusable(str(root), os.strerror(error.errno)) from None
    return root


def kept_text(path: Path) -> str:
    """The text of a small file that is kept here. Raises OSError, also for what never ends or never
    answers (a device, a pipe), and ValueError where it is no UTF-8."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
        raise OSError(errno.EINVAL, "it is no file of that kind", str(path))
    return path.read_text(encoding="utf-8")


def elsewhere(error: OSError) -> str:
    """What to do where it cannot be written: room helps a full disk alone."""
    room = "make room, or " if error.errno in _FULL else ""
    return f"{room}set {OVERRIDE} to another folder"


def _unusable(folder: str, why: str) -> CacheFolderError:
    shown = folder if len(folder) <= 80 else f"{folder[:80]}..."
    return CacheFolderError(
        f"the cache folder {shown} cannot be used ({why}); set {OVERRIDE} to another folder"
    )
