"""Selectors may be a stranger's code: what goes wrong in one is said in a line with its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magicdec.engine.errors import MagicdecError
from magicdec.engine.selectors.base import KVSelector


@contextmanager
def failures_named(selector: KVSelector) -> Iterator[None]:
    try:
        yield
    except MagicdecError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MagicdecError(f"selector {type(selector).__name__} failed: {reason}") from error
