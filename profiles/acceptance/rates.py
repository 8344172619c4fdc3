"""Acceptance by draft position: counted, pooled, and as the rates that predictions go by."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeVar

from magicdec.engine.errors import require
from magicdec.engine.gamma.lengths import lengths

Rates = tuple[float, ...]
Count = TypeVar("Count", int, float)


@dataclass(frozen=True, slots=True)
class AcceptanceRates:
    """Conditional rates: how often a draft token is accepted when all before it were.

    `rates` are those of positions 1, 2, ...; if `constant`, the first is known to hold for all.
    share: of a row's steps that draft at all. assumed: nobody measured them. contexts: rates by
    tokens of context, where they are known at some; held: those of the nearest of them, taken for
    a context beyond. Raises ConfigError for a rate outside 0..1.
    """

    rates: Rates
    source: str = "--alpha"
    constant: bool = False
    share: float = 1.0
    assumed: bool = False
    contexts: tuple[tuple[int, Rates], ...] = ()
    held: bool = False

    def __post_init__(self) -> None:
        for rates in (self.rates, *(rates for _, rates in self.contexts)):
            require(len(rates) > 0, f"{self.source} holds no acceptance rate")
            for rate in rates:
                require(
                    0 <= rate <= 1, f"{self.source}: an acceptance rate is in 0..1, got {rate:g}"
                )

    @property
    def longest(self) -> int | None:
        """The longest draft whose positions are all known; None: any."""
        return None if self.constant else len(self.rates)

    @property
    def mean(self) -> float:
        return sum(self.rates) / len(self.rates)

    def require_known(self, gamma: int) -> None:
        """Raises ConfigError for a draft beyond `longest`."""
        places = len(self.rates)
        require(
            self.constant or gamma <= places,
            f"{self.source} gives acceptance at {places} position{'s' * (places > 1)}, too few "
            f"for a draft of {gamma} tokens; end --gamma at {places} or give one rate for all",
        )

    def padded(self, gamma: int) -> Rates:
        """γ rates; later positions are taken to be like the last known one."""
        return _padded(self.rates, gamma)

    def tokens_per_step(self, gamma: int) -> float:
        """Ω of a draft of so many tokens, `padded`."""
        missed = 1 - self.rates[0]
        if self.constant and 0 < missed < 1:  # (1 − α^(γ+1)) / (1 − α), exact as α → 1
            from numpy import expm1, log1p  # readers of profiles do without

            return float(-expm1((gamma + 1) * log1p(-missed)) / missed)
        return lengths(self.padded(gamma))[-1]

    def at(self, context: float) -> AcceptanceRates:
        """At that context, where rates are known by context."""
        if not self.contexts:
            return self
        rates, (low, high) = interpolated(dict(self.contexts), context)
        return replace(self, rates=rates, contexts=(), held=low == high != context)


def interpolated(known: Mapping[int, Rates], place: float) -> tuple[Rates, tuple[int, int]]:
    """Rates at a place (a budget, a context), linear in its logarithm, and the two known places
    that it lies between. At one of them, and beyond all, it is the nearest one twice."""
    places = sorted(known)
    after = bisect.bisect(places, place)
    low = places[max(after - 1, 0)]
    high = low if low >= place else places[min(after, len(places) - 1)]
    share = math.log(place / low) / math.log(high / low) if high > low else 0.0
    count = max(len(known[low]), len(known[high]))
    pairs = zip(_padded(known[low], count), _padded(known[high], count), strict=True)
    return tuple(below * (1 - share) + above * share for below, above in pairs), (low, high)


def _padded(rates: Rates, count: int) -> Rates:
    return (*rates, *[rates[-1]] * (count - len(rates)))[:count]


def conditional_rates(unconditional: Sequence[float]) -> Rates:
    """a_i = p_i / p_{i-1} from the shares p_i of steps that accepted positions 1 to i.

    Past a share of 0 nothing was seen and nothing is expected: 0. In a recording rows near their
    end draft less, so that a share may exceed the one before it by noise; that counts as 1.
    """
    before = (1.0, *unconditional)
    return tuple(
        min(share / last, 1.0) if last else 0.0
        for last, share in zip(before, unconditional, strict=False)
    )


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """[i]: row-steps that drafted position i + 1, and that accepted it (and so all before it).
    Expected ones may be fractions; steps that draft nothing do not count."""

    drafted: tuple[float, ...]
    accepted: tuple[float, ...]

    @property
    def steps(self) -> float:
        return self.drafted[0] if self.drafted else 0

    @property
    def mean_length(self) -> float:
        """Ω as a run reports it: 1 + accepted / steps. 1 when nothing was drafted."""
        return 1 + sum(self.accepted) / self.steps if self.steps else 1.0

    @property
    def shares(self) -> tuple[float, ...]:
        """Plain ratios, of positions that were drafted at all. Where γ changes, later ones are
        drafted in other steps than earlier ones, when the draft is sure of itself above all: they
        may well rise."""
        pairs = zip(self.accepted, self.drafted, strict=True)
        return tuple(accepted / drafted for accepted, drafted in pairs if drafted)

    @property
    def falling(self) -> tuple[float, ...]:
        """Unconditional rates, non-increasing.

        Rows near their end draft fewer positions, so that the plain ratios can rise from one
        position to the next by chance. Neighbours that do are pooled until none does: the
        likeliest non-increasing rates (pool adjacent violators, Ayer et al. 1955).
        """
        blocks: list[tuple[float, float, int]] = []  # drafted, accepted, positions
        for drafted, accepted in zip(self.drafted, self.accepted, strict=True):
            block = (drafted, accepted, 1)
            while blocks and blocks[-1][1] * block[0] < block[1] * blocks[-1][0]:
                before = blocks.pop()
                block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
            blocks.append(block)
        return tuple(a / d for d, a, positions in blocks for _ in range(positions))

    def length(self, gamma: int) -> float:
        """Ω of a step that drafts `gamma`: 1 + Σ of the falling rates."""
        assert gamma <= len(self.drafted), "acceptance beyond what was drafted is not known"
        return 1 + sum(self.falling[:gamma])


def pooled(counts: Iterable[AcceptanceCounts]) -> AcceptanceCounts:
    """As one, whatever their γ: position i is drafted alike for any γ ≥ i."""
    found = list(counts)
    return AcceptanceCounts(
        summed(each.drafted for each in found), summed(each.accepted for each in found)
    )


def summed(counts: Iterable[Sequence[Count]]) -> tuple[Count, ...]:
    """Position by position."""
    return tuple(map(sum, zip_longest(*counts, fillvalue=0)))
