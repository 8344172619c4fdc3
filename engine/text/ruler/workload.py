"""A task whose text is generated to a length, and the rows made from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from magicdec.engine.errors import ConfigError
from magicdec.engine.request import Request
from magicdec.engine.text.framing import make_frame
from magicdec.engine.text.prompts import RowProgress
from magicdec.engine.text.tokenizer import Tokenizer, tokenize

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


def generated_rows(
    workloads: Sequence[Workload],
    tokenizer: Tokenizer,
    *,
    context: int | None,
    batch: int,
    prompt: str | None = None,
    raw: bool = False,
    progress: RowProgress | None = None,
) -> list[Request]:
    """`batch` rows, or one per workload when there are more; workloads take turns.

    A row has at most `context` tokens, everything included, and less than one unit of filling
    fewer. `prompt` and `raw`: see `make_frame`. Raises ConfigError when the context is missing
    or too small.
    """
    if context is None:
        raise ConfigError(f"{workloads[0].name} fills any length; say which with --context N")
    frame = make_frame(tokenizer, prompt, raw)
    room = context - len(frame)

    def tokens(text: str) -> list[int]:
        return tokenize(tokenizer, frame.indent + text, before=frame.before)

    count = max(batch, len(workloads))
    requests = []
    for row in range(count):
        turn, which = divmod(row, len(workloads))
        workload = workloads[which]
        instance = workload.instance(turn, lambda text: len(tokens(text)), room, context)
        ids = frame.head + tuple(tokens(instance.text)) + frame.tail
        requests.append(Request(document=f"{workload.name}#{turn}", tokens=ids, row=row))
        if progress is not None:
            progress(workload.name, row + 1, count)
    return requests
