"""Rows of a batch: they take free slots in order, and leave when nothing of them is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def taking_part(left: Sequence[float], slots: int) -> Iterator[list[int]]:
    """The rows of each step in turn. Meanwhile the caller lowers what is `left` of them."""
    waiting = list(range(len(left)))[::-1]
    active: list[int] = []
    while waiting or active:
        while waiting and len(active) < slots:
            active.append(waiting.pop())
        yield active
        active = [row for row in active if left[row] > 0]
