"""Memory that ran out, told from all other failures. Imports no torch, and nothing later.

Every library says it in its own words, and some say something else: near the end of the address
space even a compiled module fails to load with a ValueError.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from magicdec.engine.errors import MagicdecError, OutOfMemoryError

if sys.platform != "win32":  # here, because once memory has run out nothing can be imported
    import resource

_SAID = re.compile(
    r"can(no|')t allocate memory|unable to (mmap|allocate)|failed to map segment|bad_alloc"
    r"|could not (create|execute) a (primitive|memory object)(?! descriptor)"  # oneDNN
    r"|can't start new thread|thread creation failed|out of memory|memory allocation failed",
    re.IGNORECASE,
)
_NEAR = 136 * 2**20  # malloc asks the system for 128 MiB when a thread begins


def ran_out(error: BaseException) -> str | None:
    """One line on the memory that ran out; None when it was something else that failed."""
    if isinstance(error, MagicdecError):
        return None
    if "CUDA" in str(error) and "out of memory" in str(error):
        return "the GPU ran out of memory; lower --batch or --context"
    near = _address_space_is_used_up()
    if not (near or _says_so(error)):
        return None
    limit = _address_space()
    if limit is None:
        return "out of memory; lower --batch or --context"
    line = f"out of memory within the {limit // 2**20:,} MiB of `ulimit -v`"
    if not _says_so(error):
        line += f" ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
    return f"{line}; raise it, or lower --threads, --batch or --context"


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns an allocation that failed in spite of the forecast into one line."""
    try:
        yield
    except Exception as error:
        line = ran_out(error)
        if line is None:
            raise
        raise OutOfMemoryError(line) from error


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError):  # numpy's, too
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if isinstance(error, RuntimeError | ImportError | OSError | SystemError):
        return _SAID.search(str(error)) is not None
    return False


def _address_space() -> int | None:
    """Bytes; None without a limit."""
    if sys.platform == "win32":
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _address_space_is_used_up() -> bool:
    """Whether this process has been close to its limit: what failed may then have failed for it."""
    limit = _address_space()
    if limit is None:
        return False
    try:
        status = Path("/proc/self/status").read_text()
    except (OSError, MemoryError):
        return False
    peak = re.search(r"^VmPeak:\s*(\d+) kB", status, re.MULTILINE)
    return peak is not None and limit - 1024 * int(peak[1]) < _NEAR
