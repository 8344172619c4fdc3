"""Multi-key needle in a haystack (RULER, section 3.1): one fact asked for, others like it."""

from __future__ import annotations

from random import Random

from magicdec.engine.text.workloads.words import ADJECTIVES, NOUNS
from magicdec.engine.text.workloads.workload import Instance, Make

NEEDLES = 4  # one is asked for, the others distract
_NEAR = 40  # words to go back for the end of a sentence, so that a needle begins as one


def niah_multikey(haystack: str) -> Make:
    """Units are words of `haystack`, from a place that differs by row, repeated as needed."""
    words = haystack.split()

    def make(dice: Random, units: int) -> Instance:
        keys = _keys(dice, haystack)
        values = dice.sample(range(1_000_000, 10_000_000), NEEDLES)
        depths = [dice.random() for _ in range(NEEDLES)]
        start, asked = dice.randrange(len(words)), dice.randrange(NEEDLES)
        filling = [words[(start + i) % len(words)] for i in range(units)]
        needles = [
            f"The secret number of the {key} is {value}."
            for key, value in zip(keys, values, strict=True)
        ]
        # From the deepest on, so that earlier places stay where they are.
        for depth, needle in sorted(zip(depths, needles, strict=True), reverse=True):
            filling.insert(_sentence_end(filling, int(depth * (units + 1))), needle)
        text = (
            "Secret numbers are hidden in the text below. Remember them: you will be asked for "
            f"one of them.\n\n{' '.join(filling)}\n\n"
            f"Question: What is the secret number of the {keys[asked]}?\n"
            f"Answer: The secret number of the {keys[asked]} is"
        )
        return Instance(text, (str(values[asked]),))

    return make


def _sentence_end(words: list[str], place: int) -> int:
    """The nearest place before `place` that follows a sentence; `place` itself without one."""
    for end in range(place, max(place - _NEAR, 0), -1):
        if words[end - 1].endswith((".", "!", "?")):
            return end
    return place


def _keys(dice: Random, haystack: str) -> list[str]:
    """Different pairs of words, none of which the haystack has by chance."""
    keys: list[str] = []
    while len(keys) < NEEDLES:
        key = f"{dice.choice(ADJECTIVES)} {dice.choice(NOUNS)}"
        if key not in keys and key not in haystack:
            keys.append(key)
    return keys
