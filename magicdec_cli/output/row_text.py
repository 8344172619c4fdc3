"""The end of one row's text, wrapped, with the origin of every character."""

from __future__ import annotations

import re
from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from magicdec.cli.output.console import printable

#: Not by colour alone: what the target drew itself is bold.
ACCEPTED_STYLE = "green"
TARGET_STYLE = "bold"
_STYLES = {True: ACCEPTED_STYLE, False: TARGET_STYLE, None: ""}
_KEPT = 4000  # characters; more than any row's share of a screen
_WORD = re.compile(r"\S+\s*|\s+")


class RowText:
    """Grows at the end; keeps what a screen can show. Whitespace is squeezed to single spaces."""

    def __init__(self) -> None:
        self._text = ""
        self._accepted: list[bool | None] = []  # of each character; None: not told

    def add(self, text: str, accepted_chars: int | None) -> None:
        """The first `accepted_chars` are the draft's, the rest the target's; None: not told."""
        shown: list[str] = []
        last = self._text[-1:]
        for index, char in enumerate(text):
            char = " " if char.isspace() else printable(char)
            if char == " " and last in ("", " "):
                continue
            shown.append(char)
            self._accepted.append(None if accepted_chars is None else index < accepted_chars)
            last = char
        self._text += "".join(shown)
        if len(self._text) > 2 * _KEPT:
            self._drop(len(self._text) - _KEPT)

    def lines(self, width: int, count: int) -> list[Text]:
        """The last `count` lines at `width` cells."""
        starts = _line_starts(self._text, width)
        shown = starts[-count:]
        lines = [
            self._styled(start, end)
            for start, end in zip(shown, [*shown[1:], len(self._text)], strict=True)
        ]
        if len(starts) > count + 50:
            self._drop(starts[-count - 10])  # at a line start, so that nothing rewraps
        return lines

    def _styled(self, start: int, end: int) -> Text:
        text = Text(no_wrap=True, end="")
        for accepted, run in groupby(range(start, end), self._accepted.__getitem__):
            span = list(run)
            text.append(self._text[span[0] : span[-1] + 1], _STYLES[accepted])
        text.rstrip()
        return text

    def _drop(self, count: int) -> None:
        self._text = self._text[count:]
        del self._accepted[:count]


def _line_starts(text: str, width: int) -> list[int]:
    """Where lines begin when words wrap at `width`; a longer word is split."""
    starts, used = [0], 0
    for match in _WORD.finditer(text):
        word = match.group()
        needed = cell_len(word.rstrip())
        if used and used + needed > width:
            starts.append(match.start())
            used = 0
        if needed <= width:
            used += cell_len(word)
            continue
        for offset, char in enumerate(word):
            size = cell_len(char)
            if used + size > width and not char.isspace():
                starts.append(match.start() + offset)
                used = 0
            used += size
    return starts
