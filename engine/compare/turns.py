"""Runs over the same rows that take turns in one cache, so that all of them meet one machine.

Two passes that follow each other meet two machines: whatever else runs meanwhile slows one of
them, and their ratio says nothing. Two caches would hold every prompt twice. So the runs share the
prompts; of a run that waits only what its rows hold behind them is kept aside, a few MB for a few
dozen tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.events import Event, StepFinished

Run = Generator[Event, None, None]
Resume = Callable[[], None]

#: Blocks that a run is divided into: their spread needs some, and each needs several steps.
BLOCKS = 6
#: Tokens of a row in a block, at least.
SHORTEST = 4


def block_tokens(rows: int, new_tokens: int) -> int:
    """Tokens of all rows in a block of runs that give each row so many."""
    return rows * max(SHORTEST, math.ceil((new_tokens - 1) / BLOCKS))


def take_turns(
    runs: Sequence[Run], block: float, pause: Callable[[], Resume]
) -> Generator[tuple[int, Event], None, None]:
    """Each event with its run's number. A run has its turn until steps have given `block` tokens
    more, or it is over; all make the same text, so that a round's turns cover the same tokens.

    pause: keeps the state of what ran last, and gives what brings it back. Closing the iterator
    closes the runs.
    """
    waiting: list[Resume | None] = [None] * len(runs)
    emitted, going, goal = [0] * len(runs), list(range(len(runs))), 0.0
    try:
        while going:
            goal += block
            for number in list(going):
                resume, waiting[number] = waiting[number], None
                if resume is not None:
                    resume()
                for event in runs[number]:
                    yield number, event
                    if isinstance(event, StepFinished):
                        emitted[number] += sum(len(row.tokens) for row in event.rows)
                        if emitted[number] >= goal:
                            break
                else:
                    going.remove(number)
                    continue
                if len(going) > 1:
                    waiting[number] = pause()
    finally:
        for run in runs:
            run.close()


def pause(cache: KVCache, clock: Clock) -> Resume:
    """Keeps a run's place in a cache whose prompts stay, and in time. What it gives brings both
    back; the time in between is nobody's."""
    stopped = clock.suspend()
    seal, cache.seal = cache.seal, None  # of the keys of this run alone
    lengths = list(cache.lengths)
    spans = list(enumerate(zip(cache.prompt_lengths, lengths, strict=True)))
    kept = [
        (store, slot, start, end, store[:, slot, :, start:end].clone())
        for store in (cache.k, cache.v)
        for slot, (start, end) in spans
    ]

    def resume() -> None:
        for store, slot, start, end, entries in kept:
            store[:, slot, :, start:end] = entries
        cache.lengths[:] = lengths
        cache.seal = seal
        clock.resume(stopped)

    return resume
