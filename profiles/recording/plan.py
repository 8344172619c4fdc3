"""Which cells a sweep measures, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.profiles.storage.schema import CellKey


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that share their rows, so that these are prefilled once."""

    batch: int
    context: int
    temperature: float
    cells: tuple[CellKey, ...]


def groups(cells: Sequence[CellKey], finished: set[CellKey]) -> list[Group]:
    """What is left to do. Batch by batch, so that a cache serves all contexts of one; the longest
    context first, because shorter prompts are beginnings of longer ones and only copied then.
    """
    shared: dict[tuple[int, int, float], list[CellKey]] = {}
    for cell in cells:
        if cell not in finished:
            shared.setdefault((cell.batch, cell.context, cell.temperature), []).append(cell)
    order = sorted(shared, key=lambda rows: (-rows[0], -rows[1], rows[2]))
    return [Group(*rows, tuple(shared[rows])) for rows in order]
