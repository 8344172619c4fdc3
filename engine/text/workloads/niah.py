"""Multi-key needle in a haystack (RULER, section 3.1): one fact asked for, others like it."""

from __future__ import annotations

from random import Random

from magicdec.engine.text.workloads.sentences import sentences
from magicdec.engine.text.workloads.words import ADJECTIVES, NOUNS
from magicdec.engine.text.workloads.workload import Instance, Make

NEEDLES = 4  # one is asked for, the others distract
DEPTHS = 40  # from the first sentence to the last; no two needles have the same


def niah_multikey(haystack: str) -> Make:
    """Units are words of `haystack`, from a sentence that differs by row, repeated as needed."""
    known = sentences(haystack)

    def make(dice: Random, units: int) -> Instance:
        keys = _keys(dice, haystack)
        values = dice.sample(range(1_000_000, 10_000_000), NEEDLES)
        depths = sorted(dice.sample(range(DEPTHS), NEEDLES), reverse=True)
        start, asked = dice.randrange(len(known)), dice.randrange(NEEDLES)
        filling, whole = _filling(known, start, units)
        needles = [
            f"The secret number of the {key} is {value}."
            for key, value in zip(keys, values, strict=True)
        ]
        # From the deepest on, so that earlier places stay where they are.
        for depth, needle in zip(depths, needles, strict=True):
            filling.insert(whole * depth // (DEPTHS - 1), needle)
        text = (
            "Secret numbers are hidden in the text below. Remember them: you will be asked for "
            f"one of them.\n\n{' '.join(filling)}\n\n"
            f"Question: What is the secret number of the {keys[asked]}?\n"
            f"Answer: The secret number of the {keys[asked]} is"
        )
        return Instance(text, (str(values[asked]),))

    return make


def _filling(known: list[list[str]], start: int, units: int) -> tuple[list[str], int]:
    """Sentences of `units` words together, and how many of them are whole: the last may be cut."""
    filling: list[str] = []
    while units > 0:
        sentence = known[(start + len(filling)) % len(known)]
        filling.append(" ".join(sentence[:units]))
        units -= len(sentence)
    return filling, len(filling) - (units < 0)


def _keys(dice: Random, haystack: str) -> list[str]:
    """Different pairs of words, none of which the haystack has by chance."""
    keys: list[str] = []
    while len(keys) < NEEDLES:
        key = f"{dice.choice(ADJECTIVES)} {dice.choice(NOUNS)}"
        if key not in keys and key not in haystack:
            keys.append(key)
    return keys
