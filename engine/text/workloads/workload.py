"""A document that is made to measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from magicdec.engine.errors import ConfigError

_TRIES = 8  # guesses before plain bisection


@dataclass(frozen=True, slots=True)
class Instance:
    """One filled task: it ends with the question, and `answers` are what a right reply holds."""

    text: str
    answers: tuple[str, ...]


#: Makes an instance with `units` of filling (sentences, words, paragraphs) from a fresh generator.
Make = Callable[[Random, int], Instance]


@dataclass(frozen=True, slots=True)
class Workload:
    """A task, and the seed that tells its instances from those of another run."""

    name: str
    make: Make
    seed: int = 0
    warnings: tuple[str, ...] = ()
    make_short: Make | None = None  # instead, in contexts below `long_from` tokens
    long_from: int = 0

    @property
    def content(self) -> str:
        """What tells it from another task of its name: a short instance."""
        return self.make(Random(f"{self.name} {self.seed} 0"), 8).text

    def instance(
        self, number: int, count: Callable[[str], int], limit: int, context: int | None = None
    ) -> Instance:
        """Instance `number`, as long as fits `limit` tokens as `count` counts them.

        Shorter by less than one unit of filling. `context` is what the whole row may have, if
        that is more. Raises ConfigError when none fits.
        """
        short = self.make_short if (context or limit) < self.long_from else None
        make = short or self.make

        def made(units: int) -> tuple[Instance, int]:
            instance = make(Random(f"{self.name} {self.seed} {number}"), units)
            return instance, count(instance.text)

        low, (best, used) = 1, made(1)
        if used > limit:
            raise ConfigError(
                f"{self.name} takes at least {used} tokens, {limit} are left for it; "
                "raise --context"
            )
        least, high, tries = used, 0, 0  # high 0: no number of units is known to be too many
        slope = max(made(9)[1] - least, 8) / 8
        while high - low != 1:
            tries += 1
            guess = low + max(1, int((limit - used) / slope))
            if high and (guess >= high or tries > _TRIES):
                guess = (low + high) // 2
            instance, tokens = made(guess)
            slope = max(tokens - least, 1) / (guess - 1)
            if tokens <= limit:
                low, best, used = guess, instance, tokens
            else:
                high = guess
        return best
