"""Selectors may be a stranger's code: what goes wrong in one is said in a line with its name."""

from __future__ import annotations

from contextlib import AbstractContextManager

from magicdec.engine import plugins
from magicdec.engine.selectors.base import KVSelector


def failures_named(selector: KVSelector) -> AbstractContextManager[None]:
    return plugins.failures_named(f"selector {type(selector).__name__} failed")
