"""The tasks after RULER (arXiv 2404.06654): needles, common words, question answering.

RULER takes its paragraphs from SQuAD and HotpotQA; these are generated, so that nothing has to be
downloaded and no model has seen them.
"""

from __future__ import annotations

from random import Random

from magicdec.engine.errors import ConfigError
from magicdec.engine.text.ruler.sentences import sentences
from magicdec.engine.text.ruler.workload import Instance, Make


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ADJECTIVES = _words(
    "amber ancient bitter blazing bronze calm crimson crooked distant dusty eager faded fierce "
    "frozen gentle gilded hollow humble icy ivory jagged lonely lucid mellow misty mossy narrow "
    "noble olive pale placid quiet ragged rustic scarlet silent silver slender somber velvet"
)
NOUNS = _words(
    "anchor anvil badger barrel beacon bridge candle canyon castle cedar chapel compass copper "
    "falcon ferry fountain garden glacier hammer harbor heron island kettle lantern ladder lion "
    "marble meadow mirror orchard otter pebble pigeon quarry raven saddle thistle tower walnut "
    "willow"
)
GIVEN_NAMES = _words(
    "Adela Albin Berta Bruno Carla Casimir Dora Dunstan Edith Emil Flora Florian Greta Gustav "
    "Hanna Hugo Ida Ivo Judith Jonas Klara Konrad Lena Lorenz Marta Matteo Nadia Nils Olga Oskar "
    "Paula Pavel Rosa Rufus Selma Simon Thea Tobias Vera Viktor"
)
FAMILY_NAMES = _words(
    "Abendroth Albrecht Anders Bellamy Birk Borowski Calloway Castel Dalgaard Dorn Eklund "
    "Fairbank Falk Fontana Grell Halvorsen Hartung Ivers Jansen Kestrel Kowal Lindqvist Marchetti "
    "Merrow Novak Oberlin Pascoe Petrov Quill Rademacher Rinaldi Sorel Sandoval Tavish Thorne "
    "Ulrich Varga Vestergaard Wexler Yarrow Zeller"
)
CITIES = _words(
    "Aldmoor Ashford Belvane Brackwater Caldera Carrow Dunmere Eastvale Elmstead Fallowfield "
    "Farrow Glenhaven Greyport Harrowgate Highmoor Ironbridge Kestrelton Langmere Larkspur "
    "Marwick Milford Northwold Oakhurst Pemberton Quarrytown Ravenna Redcliff Saltmarsh Silverton "
    "Stonebridge Thornbury Underhill Valdoro Westerly Whitcombe Winterbourne"
)
TRADES = _words(
    "baker bookbinder brewer carpenter cartographer clockmaker cooper whitesmith gardener glazier "
    "goldsmith fiddle-maker lacemaker locksmith mason midwife miller painter physician potter "
    "printer saddler shipwright weaver"
)

_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = tuple(c + v for c in _CONSONANTS for v in _VOWELS)


def made_up_words(dice: Random, count: int) -> list[str]:
    """Different words of three syllables: hundreds of thousands, without a list of them."""
    size = len(_SYLLABLES)
    if count > size**3:
        raise ConfigError(f"no list needs {count:,} different words; lower --context")
    found = dice.sample(range(size**3), count)
    return [
        _SYLLABLES[n // size**2] + _SYLLABLES[n // size % size] + _SYLLABLES[n % size]
        for n in found
    ]


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
