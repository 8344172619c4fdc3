"""Acceptance as a prediction needs it: one rate for every position, or one for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from magicdec.engine.errors import require
from magicdec.profiles.costs.passes import Floats
from magicdec.profiles.costs.speculation import tokens_per_step


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Conditional rates: how often a draft token is accepted when all before it were.

    `rates` are those of positions 1, 2, ... and say nothing about a longer draft; `constant`, the
    first holds for every position. Raises ConfigError for a rate outside 0..1.
    """

    rates: tuple[float, ...]
    constant: bool = False
    source: str = "--alpha"

    def __post_init__(self) -> None:
        require(len(self.rates) > 0, f"{self.source} holds no acceptance rate")
        for rate in self.rates:
            require(0 <= rate <= 1, f"{self.source}: an acceptance rate is in 0..1, got {rate:g}")

    @property
    def longest(self) -> int | None:
        """The longest draft the rates can price; None: any."""
        return None if self.constant else len(self.rates)

    def tokens_per_step(self, gamma: ArrayLike) -> Floats:
        """Ω for each γ (whole numbers). Raises ConfigError beyond `longest`."""
        drafts = np.asarray(gamma, np.int64)
        if self.constant:
            return tokens_per_step(self.rates[0], drafts)
        most, places = int(drafts.max(initial=0)), len(self.rates)
        require(
            most <= places,
            f"{self.source} gives acceptance at {places} position{'s' * (places > 1)}, too few "
            f"for a draft of {most} tokens; end --gamma at {places} or give one rate for all",
        )
        reached = np.concatenate(([1.0], np.cumprod(self.rates)))
        return np.cumsum(reached)[drafts]


def conditional_rates(unconditional: Sequence[float]) -> tuple[float, ...]:
    """a_i = p_i / p_{i-1} from the shares p_i of steps that accepted positions 1 to i.

    Past a share of 0 nothing was seen and nothing is expected: 0. In a recording rows near their
    end draft less, so that a share may exceed the one before it by noise; that counts as 1.
    """
    before = (1.0, *unconditional)
    return tuple(
        min(share / last, 1.0) if last else 0.0
        for last, share in zip(before, unconditional, strict=False)
    )
