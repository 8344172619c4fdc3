"""Where sentences end, well enough that nothing put between two of them stands within one."""

from __future__ import annotations

import re
from collections.abc import Sequence

_BLANK_LINE = re.compile(r"\n\s*\n")
_END = re.compile(r"""[.!?]["')\]]*$""")
_OPENING = "\"'(["
_SHORT_FORMS = {"e.g.", "i.e.", "etc.", "cf.", "vs.", "mr.", "mrs.", "ms.", "dr.", "st.", "no."}


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence; a paragraph ends one, too, so headings and code are some."""
    return [
        sentence for paragraph in _BLANK_LINE.split(text) for sentence in _split(paragraph.split())
    ]


def _split(words: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = []
    current: list[str] = []
    for place, word in enumerate(words):
        current.append(word)
        after = words[place + 1] if place + 1 < len(words) else None
        if after is None or (_ends(word) and after.lstrip(_OPENING)[:1].isupper()):
            found.append(current)
            current = []
    return found


def _ends(word: str) -> bool:
    return bool(_END.search(word)) and word.lstrip(_OPENING).lower() not in _SHORT_FORMS
