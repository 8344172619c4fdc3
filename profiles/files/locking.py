"""One writer of a file at a time. A killed process leaves no lock behind.

The file itself is locked, which not every `filelock` can without emptying it; a lock beside it
would be litter in the user's folder, of which earlier versions know nothing.
"""

from __future__ import annotations

import sys
from typing import BinaryIO


def lock(file: BinaryIO, *, unknown: bool = True) -> bool:
    """Until the file is closed. False when somebody else has it; `unknown` where there are no
    locks: Windows, some network disks."""
    if sys.platform == "win32":
        return unknown
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return unknown
    return True
