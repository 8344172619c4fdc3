"""How speculative decoding walks through a known text. Numbers only; `Kept` comes from `forced`.

Given that token x was emitted after some text, it was an accepted draft with probability
min(1, q(x) / p(x)): speculative sampling emits x as an accepted draft with probability
min(p(x), q(x)), and with p(x) in all (Leviathan et al., arXiv 2211.17192). Whether the tokens of a
step were accepted is then independent from token to token, so that the expected number of steps
over a given text follows exactly. Greedy decoding is the case in which each probability is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: [n]: the chance that each token after a row's first one was an accepted draft, had it been
#: drafted.
Kept = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Walk:
    """Expected counts over one row or several. Steps that draft nothing do not count.

    drafted [γ], accepted [γ]: steps that drafted position 1, 2, ...; and that accepted it and so
    all before it.
    """

    drafted: NDArray[np.float64]
    accepted: NDArray[np.float64]

    @property
    def steps(self) -> float:
        return float(self.drafted[0])

    @property
    def mean_acceptance_length(self) -> float:
        """Ω as a run reports it: 1 + accepted / steps. 1 when nothing was drafted."""
        return 1 + float(self.accepted.sum()) / self.steps if self.steps else 1.0

    @property
    def acceptance_rate_per_position(self) -> list[float]:
        """Of the positions that were drafted at all."""
        pairs = zip(self.accepted, self.drafted, strict=True)
        return [float(accepted / drafted) for accepted, drafted in pairs if drafted]


def walk(kept: Kept, gamma: int) -> Walk:
    """One row: its first token is there, each step drafts γ tokens and adds one of the target's.

    As in a run, a step near the end drafts no more than it can use.
    """
    tokens = len(kept)  # that steps have to emit
    drafted, accepted = np.zeros(gamma), np.zeros(gamma)
    visits = np.zeros(tokens + 1)  # expected steps that begin after so many of them
    visits[0] = 1.0
    for start in range(tokens):
        width = min(gamma, tokens - 1 - start)
        # reach[j]: the chance that the step accepts at least j tokens
        reach = np.concatenate(([1.0], np.cumprod(kept[start : start + width])))
        drafted[:width] += visits[start]
        accepted[:width] += visits[start] * reach[1:]
        ends = reach - np.append(reach[1:], 0.0)  # ends[j]: that it accepts exactly j
        visits[start + 1 : start + width + 2] += visits[start] * ends
    return Walk(drafted, accepted)


def pooled(walks: Sequence[Walk]) -> Walk:
    """The rows of a batch as one."""
    return Walk(
        np.sum([walk.drafted for walk in walks], axis=0),
        np.sum([walk.accepted for walk in walks], axis=0),
    )
