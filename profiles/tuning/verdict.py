"""What real runs say: medians with their spread, and who wins by them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.profiles.storage.schema import Repeat, Sample
from magicdec.profiles.tuning.candidate import Candidate, Place
from magicdec.profiles.tuning.choosing import Ranking, rank
from magicdec.profiles.tuning.objective import Objective

MANY = 4  # rounds
UNSTEADY = 0.15  # spread of rounds that calls for more of them


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's real runs, one per round; `plain` are plain decoding's of the same rounds.

    tpots: seconds, as `samples`. At least one round is needed.
    """

    place: Place
    candidate: Candidate
    samples: tuple[Sample, ...]
    tpots: tuple[float, ...]
    plain: tuple[Sample, ...]

    @property
    def tokens_per_s(self) -> float:
        return statistics.median(self._rates)

    @property
    def tpot(self) -> float:
        return statistics.median(self.tpots)

    @property
    def speedups(self) -> tuple[float, ...]:
        """Of each round over plain decoding in the same round; 1 for plain decoding itself."""
        pairs = zip(self.plain, self.samples, strict=True)
        return tuple(Repeat(plain, sample).speedup or 0.0 for plain, sample in pairs)

    @property
    def speedup(self) -> float:
        return statistics.median(self.speedups)

    @property
    def beats_plain(self) -> bool:
        """In every round; of MANY, one may have been disturbed."""
        if self.candidate.plain:
            return False
        slower = sum(speedup <= 1 for speedup in self.speedups)
        return slower <= (len(self.speedups) >= MANY)

    @property
    def spread(self) -> float:
        """How much faster the fastest round was than the slowest, 0 for one round."""
        rates = self._rates
        return max(rates) / min(rates) - 1 if min(rates) > 0 else 0.0

    @property
    def _rates(self) -> list[float]:
        return [sample.tokens_per_s or 0.0 for sample in self.samples]

    def apart(self, other: Measured) -> bool:
        """Whether the slowest round of one is faster than the fastest of the other; of MANY, the
        slowest is left out."""
        mine, theirs = (
            sorted(one._rates)[len(one._rates) >= MANY :] for one in (self, other)
        )  # fmt: skip
        return min(mine) > max(theirs) or min(theirs) > max(mine)


def verdict(measured: Sequence[Measured], objective: Objective) -> Ranking[Measured]:
    """The measured ranking, of one place or several; each has its plain decoding in `measured`.

    Speculation has to beat plain decoding as `beats_plain` says to win over it; where plain
    decoding breaks the TPOT limit, it need not.
    """
    found = rank(measured, objective, Measured.apart)
    if found.winner is None:
        return found
    plain = {one.place: one for one in measured if one.candidate.plain}
    able = [
        one for one in measured
        if one.candidate.plain or one.beats_plain or not objective.allows(plain[one.place])
    ]  # fmt: skip
    winner = rank(able, objective, Measured.apart)
    return Ranking(found.ordered, winner.winner, found.nearest, winner.as_good)


def unsteady(measured: Sequence[Measured]) -> bool:
    """Whether the rounds of anybody differ by more than UNSTEADY."""
    return any(one.spread > UNSTEADY for one in measured)
