"""The words that tasks are filled with."""

from __future__ import annotations

from random import Random

from magicdec.engine.errors import ConfigError


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
