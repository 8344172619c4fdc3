"""One row to decode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and where it came from. `row` is its index in the run and seeds its sampling."""

    document: str
    tokens: tuple[int, ...]
    row: int
