"""Arguments as a POSIX shell reads them back, harmless to the terminal that shows them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from magicdec.engine.harmless import clean


def shell_line(words: Sequence[str], *, ascii: bool = False) -> str:
    """A command line to be copied; ascii: for a terminal that has no other characters."""
    return " ".join(shell_word(word, ascii=ascii) for word in words)


def shell_word(word: str, *, ascii: bool = False) -> str:
    """Quoted where it has to be: as $'...\\033...' where a character must not be shown."""
    if all(_showable(c, ascii) for c in word):
        return shlex.quote(word)
    return "$'" + "".join(_escaped(c, ascii) for c in word) + "'"


def _showable(c: str, ascii: bool) -> bool:
    return clean(c) == c and (c.isascii() or not ascii)


def _escaped(c: str, ascii: bool) -> str:
    if not _showable(c, ascii):
        return "".join(f"\\{byte:03o}" for byte in os.fsencode(c))
    return f"\\{c}" if c in "'\\" else c
