"""One writer of a file at a time. A killed process leaves no lock behind."""

from __future__ import annotations

import sys
from typing import BinaryIO


def free(file: BinaryIO) -> bool:
    """Whether nobody has it, as far as locks can tell; False where there are none."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def lock(file: BinaryIO) -> bool:
    """Until the file is closed. False when somebody else has it; True where there are no locks."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
