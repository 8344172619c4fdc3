"""Common words extraction (RULER, section 3.3): ten words that occur more often than the rest."""

from __future__ import annotations

from random import Random

from magicdec.engine.text.workloads.words import made_up_words
from magicdec.engine.text.workloads.workload import Instance

COMMON = 10
ANSWER = 120  # tokens that RULER counts as part of a task's length
#: How often a common and another word occur, as RULER has it from 4,096 tokens on, and below.
LONG, SHORT = (30, 3), (6, 1)
LONG_FROM = 4096 - ANSWER  # tokens of the prompt


def common_words(dice: Random, units: int) -> Instance:
    """Units are words that are not common."""
    return _listed(dice, units, *LONG)


def common_words_in_short(dice: Random, units: int) -> Instance:
    return _listed(dice, units, *SHORT)


def _listed(dice: Random, others: int, often: int, seldom: int) -> Instance:
    words = made_up_words(dice, COMMON + others)
    common = words[:COMMON]
    listed = common * often + words[COMMON:] * seldom
    dice.shuffle(listed)
    numbered = " ".join(f"{place}. {word}" for place, word in enumerate(listed, start=1))
    text = (
        f"Below is a numbered list of words. {COMMON} of them occur more often than all others. "
        f"Remember which.\n\n{numbered}\n\n"
        f"Question: What are the {COMMON} most common words in the list above?\n"
        f"Answer: The {COMMON} most common words are:"
    )
    return Instance(text, tuple(common))
