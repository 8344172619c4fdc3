"""Tokens of plain steps that the drafter's cache has not seen: fed before it drafts again."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.engine.clock import Clock
from magicdec.engine.drafters.base import Drafter
from magicdec.engine.rows import Row


class Backlog:
    """Rows that wait to be admitted to the drafter, and tokens that it has not seen.

    Both are made up for right before the drafter is needed again, which may be never.
    """

    def __init__(self, drafter: Drafter | None, clock: Clock) -> None:
        self._drafter, self._clock = drafter, clock
        self._waiting: set[int] = set()  # slots
        self._unseen: dict[int, int] = {}  # slot -> tokens

    def admit(self, slot: int) -> None:
        self._waiting.add(slot)
        self._unseen[slot] = 0

    def skip(self, slots: Sequence[int], counts: Sequence[int]) -> None:
        """A plain step gave these tokens."""
        for slot, count in zip(slots, counts, strict=True):
            self._unseen[slot] += count

    def unprepared(self, rows: Sequence[Row]) -> int:
        """How many of the rows would have to be admitted first."""
        return sum(row.slot in self._waiting for row in rows)

    def settle(self, rows: Sequence[Row]) -> None:
        """Makes the drafter ready to draft for all rows."""
        if self._drafter is None:
            return
        for row in rows:
            if row.slot in self._waiting:
                with self._clock.phase("select"):
                    self._drafter.admit(row.slot)
                self._waiting.remove(row.slot)
        behind = [row for row in rows if self._unseen[row.slot]]
        if behind:
            with self._clock.phase("draft"):
                self._drafter.catch_up(behind, [self._unseen[row.slot] for row in behind])
            self._unseen.update((row.slot, 0) for row in behind)
