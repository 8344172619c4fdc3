"""Question answering over distracting paragraphs (RULER, section 3.4), on made-up biographies.

RULER takes its paragraphs from SQuAD and HotpotQA; these are generated, so that nothing has to be
downloaded and no model has seen them.
"""

from __future__ import annotations

from random import Random

from magicdec.engine.text.workloads.words import CITIES, FAMILY_NAMES, GIVEN_NAMES, TRADES
from magicdec.engine.text.workloads.workload import Instance

_PAIRS = len(GIVEN_NAMES) * len(FAMILY_NAMES)
_ORIGIN = (
    "{name} was born in {city} in {year}.",
    "Born in {city} in {year}, {name} was the youngest of {siblings} children.",
    "The family of {name}, who was born in {year}, came from {city}.",
)
_WORK = (
    "{name} trained as a {trade} and opened a workshop in {place}.",
    "After years of travel {name} settled in {place} to work as a {trade}.",
    "In {place} the name of {name} stood for the best {trade} of the region.",
)
_END = (
    "A street there bears the name to this day.",
    "Letters from these years are kept in the town's archive.",
    "Neighbours remembered long evenings of music and argument.",
    "The house was sold in {sold}.",
)
_QUESTIONS = (
    ("In which year was {name} born?", "year"),
    ("What was the trade of {name}?", "trade"),
    ("In which town did {name} work?", "place"),
)


def biographies(dice: Random, units: int) -> Instance:
    """Units are paragraphs, one person each; one of them is asked about."""
    place, (question, member) = dice.random(), dice.choice(_QUESTIONS)
    first = dice.randrange(_PAIRS)
    people = [_person(dice, first, number) for number in range(units)]
    asked = people[int(place * units)]
    paragraphs = "\n\n".join(
        f"Document {number}: {person['text']}" for number, person in enumerate(people, start=1)
    )
    text = (
        "Answer the question from the documents below, in a few words and nothing else.\n\n"
        f"{paragraphs}\n\n"
        f"Question: {question.format(name=asked['name'])}\nAnswer:"
    )
    return Instance(text, (asked[member],))


def _person(dice: Random, first: int, number: int) -> dict[str, str]:
    facts = {
        "name": _name(first, number),
        "city": dice.choice(CITIES),
        "place": dice.choice(CITIES),
        "trade": dice.choice(TRADES),
        "year": str(dice.randrange(1710, 1900)),
        "siblings": str(dice.randrange(3, 12)),
        "sold": str(dice.randrange(1900, 1990)),
    }
    parts = (dice.choice(_ORIGIN), dice.choice(_WORK), dice.choice(_END))
    return facts | {"text": " ".join(part.format(**facts) for part in parts)}


def _name(first: int, number: int) -> str:
    """Differs from number to number: all pairs of names in turn, then with initials between."""
    at = (first + number * 1009) % _PAIRS  # a prime, so that all pairs are met
    given, family = GIVEN_NAMES[at % len(GIVEN_NAMES)], FAMILY_NAMES[at // len(GIVEN_NAMES)]
    initials, turn = "", number // _PAIRS
    while turn:
        turn, letter = divmod(turn - 1, 26)
        initials += f" {chr(ord('A') + letter)}."
    return f"{given}{initials} {family}"
