"""Contains a stranger's code: names what it raises, puts back what it sets for the process.

Imports no torch: a plug-in may be loaded for a listing.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from magicdec.engine.errors import MagicdecError, PluginError
from magicdec.engine.untrusted import clean, plain_words

LONGEST = 250  # characters of a stranger's message


class Contained(AbstractContextManager[None]):
    """Whatever is raised inside, `sys.exit` too, becomes one line after `what`.

    What it refuses on purpose keeps its exit code; Ctrl-C is the user's.

    owner: put before a refusal that does not name it. lasting: what is set for the process, such
    as torch's default dtype, is left: for what only the package's own code does.
    """

    def __init__(self, what: str, owner: str = "", *, lasting: bool = False) -> None:
        self._what, self._owner, self._lasting = what, owner, lasting

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        self._before = None if self._lasting else _Surroundings()
        self._stdout = sys.stdout
        if not self._lasting:
            sys.stdout = _Aside()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        # First, and called from here: with the limit that was set, the next function may be one
        # too deep.
        sys.setrecursionlimit(self._limit)
        sys.stdout = self._stdout
        if self._before is not None:
            self._before.put_back()
        if error is None or isinstance(error, KeyboardInterrupt):
            return
        if not isinstance(error, MagicdecError):
            raise PluginError(f"{self._what}: {reason_of(error)}") from error
        if self._owner and self._owner not in str(error):
            raise type(error)(f"{self._owner}: {_shown(error)}") from error


def selector_failures(selector: str, where: str) -> Contained:
    """Around a call of a selector; what it refuses on purpose is named, too."""
    return Contained(f"selector {selector} failed in {where}", f"selector {selector}")


def reason_of(error: BaseException) -> str:
    """On one line, also where the error cannot be shown itself."""
    said = _shown(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _shown(error: BaseException) -> str:
    try:
        return clean(" ".join(plain_words(error).split()), LONGEST)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a stranger's `__str__` may leave, too
        return "its message cannot be shown"


class _Aside(io.TextIOBase):
    """What a stranger prints goes to stderr: stdout is for results, which others read. To close
    it closes nothing."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def close(self) -> None:
        pass


class _Surroundings:
    """What of the process others go by, as it is now."""

    def __init__(self) -> None:
        self._filters = warnings.filters[:]
        self._torch = [get() for get, _ in _settings()]

    def put_back(self) -> None:
        # Modules that are imported add filters, and rightly; no warning is to become an error.
        raising = [f for f in warnings.filters if f[0] == "error" and f not in self._filters]
        if raising:
            kept = [f for f in warnings.filters if f not in raising]
            warnings.filters[:] = kept  # type: ignore[index]
        settings = _settings()
        if settings and not self._torch:  # torch came with the stranger
            torch = sys.modules["torch"]
            torch.set_default_dtype(torch.float32)
            torch.set_default_device(None)
            return
        for (get, put), value in zip(settings, self._torch, strict=True):
            if get() != value:
                put(value)


def _settings() -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Of torch, once it is there: how each is read and set."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "set_float32_matmul_precision"):
        return []
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, torch.set_default_device),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    ]
