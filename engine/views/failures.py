"""Selectors may be a stranger's code: what goes wrong in one is said in a line with its name."""

from __future__ import annotations

from contextlib import AbstractContextManager

from magicdec.engine.contained import Contained
from magicdec.engine.selectors.base import KVSelector


def failures_named(selector: KVSelector) -> AbstractContextManager[None]:
    # A stranger's calls are guarded one by one, see `strangers`: the package's own pay nothing.
    return Contained(f"selector {type(selector).__name__} failed", lasting=True)
