"""What the draft said where the target said something else, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magicdec.engine.events import Event, RowStarted, StepFinished

MOST_ROWS = 16  # whose text is on a screen; spelling more would only take time from the run

#: Of a token and those after it: what the latter say.
Spell = Callable[[int, Sequence[int]], str]


class Rejections:
    """Of one pass, fed with all its events."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        self._last: dict[int, int] = {}  # token of each row

    def of(self, event: Event) -> tuple[tuple[int, str], ...]:
        """Row and text, for the rows of a step that had something rejected."""
        if isinstance(event, RowStarted):
            self._last[event.row] = event.token
        if not isinstance(event, StepFinished):
            return ()
        found = []
        for share in event.rows:
            if share.rejected and share.row < MOST_ROWS:
                before = (self._last[share.row], *share.tokens)[: share.accepted + 1][-1]
                found.append((share.row, self._spell(before, share.rejected)))
            self._last[share.row] = share.tokens[-1]
        return tuple(found)
