"""Common words extraction (RULER, section 3.3): ten words that occur more often than the rest."""

from __future__ import annotations

from random import Random

from magicdec.engine.text.workloads.words import made_up_words
from magicdec.engine.text.workloads.workload import Instance

COMMON = 10
OFTEN, SELDOM = 30, 3  # occurrences of a common and of another word, where there is room
_EXTRA = 2  # occurrences a common word has at the least


def common_words(dice: Random, units: int) -> Instance:
    """Units are words of the numbered list, beyond the common ones' first occurrences.

    At most half of a short list are common words; the others then occur a tenth as often, once
    at the least.
    """
    total = units + COMMON * _EXTRA
    often = min(OFTEN, max(_EXTRA, total // (2 * COMMON)))
    seldom = max(1, often * SELDOM // OFTEN)
    rest = total - COMMON * often
    words = made_up_words(dice, COMMON + -(-rest // seldom))
    common, others = words[:COMMON], words[COMMON:]
    listed = [word for word in common for _ in range(often)]
    listed += [word for word in others for _ in range(seldom)][:rest]
    dice.shuffle(listed)
    numbered = " ".join(f"{place}. {word}" for place, word in enumerate(listed, start=1))
    text = (
        f"Below is a numbered list of words. {COMMON} of them occur more often than all others. "
        f"Remember which.\n\n{numbered}\n\n"
        f"Question: What are the {COMMON} most common words in the list above?\n"
        f"Answer: The {COMMON} most common words are:"
    )
    return Instance(text, tuple(common))
