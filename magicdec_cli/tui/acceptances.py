"""What acceptance to expect of settings: measured by earlier runs, or else assumed."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from magicdec.cli.bars import rate
from magicdec.cli.knobs import DECODE, Settings

Kind = tuple[object, ...]
GREEDY = (0.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0)  # temperature, top-k, top-p, min-p, penalties
OWN = (DECODE.draft, DECODE.draft_kv)  # the model drafts for itself
CALIBRATION = 0  # in place of a run's number


@dataclass(frozen=True, slots=True)
class Expected:
    """Conditional acceptance of positions 1, 2, ..., and where it comes from."""

    rates: tuple[float, ...]
    source: str  # says it in a few words
    measured: bool

    def tokens_per_step(self, gamma: int) -> float:
        """Ω; a longer draft than was measured goes on at the last rate."""
        total, reached = 1.0, 1.0
        for position in range(gamma):
            reached *= self.rates[min(position, len(self.rates) - 1)]
            total += reached
        return total


@dataclass(slots=True)
class Book:
    """The latest rates by drafter and budget. The text counts too, but a book has one text."""

    _known: dict[Kind, dict[int, tuple[tuple[float, ...], int]]] = field(default_factory=dict)

    def learn(self, run: int, settings: Settings, weights: str, shares: Sequence[float]) -> None:
        """`shares`: of the steps that drafted position i, those that accepted it."""
        from magicdec.profiles.costs.acceptance import conditional_rates  # numpy

        rates = conditional_rates(shares)
        if rates:
            budgets = self._known.setdefault(_kind(settings, weights), {})
            budgets[settings.budget] = (rates, run)

    def learn_calibrated(
        self, selector: str, budget: int, weights: str, rates: tuple[float, ...]
    ) -> None:
        """Greedy, and with the selector's default options."""
        if rates:
            kind = (*OWN, selector, (), weights, *GREEDY)
            self._known.setdefault(kind, {}).setdefault(budget, (rates, CALIBRATION))

    def expect(self, settings: Settings, weights: str) -> Expected | None:
        """Between two measured budgets rates are interpolated over log(budget); beyond, held.

        None where nothing can be assumed: early exits, which untrained are accepted next to never.
        """
        budgets = self._known.get(_kind(settings, weights))
        if not budgets:
            if settings.who.layers is not None:
                return None
            from magicdec.cli.predict_input import ASSUMED_ALPHA

            return Expected((ASSUMED_ALPHA,), f"acceptance assumed {rate(ASSUMED_ALPHA)}", False)
        if settings.budget in budgets:
            rates, run = budgets[settings.budget]
            return Expected(rates, f"acceptance of {_source(run)}", True)
        return _between(budgets, settings.budget)


def _kind(settings: Settings, weights: str) -> Kind:
    options = tuple(sorted((key, str(v)) for key, v in settings.selector_option.items()))
    sampling = (
        settings.temperature, settings.top_k, settings.top_p, settings.min_p, *settings.penalties,
    )  # fmt: skip
    return (settings.draft, settings.draft_kv, settings.selector, options, weights, *sampling)


def _between(budgets: Mapping[int, tuple[tuple[float, ...], int]], budget: int) -> Expected:
    known = sorted(budgets)
    place = bisect.bisect(known, budget)
    if place in (0, len(known)):
        nearest = known[min(place, len(known) - 1)]
        rates, run = budgets[nearest]
        return Expected(rates, f"acceptance of {_source(run)} (budget {nearest:,})", True)
    low, high = known[place - 1], known[place]
    share = math.log(budget / low) / math.log(high / low)
    (below, first), (above, second) = budgets[low], budgets[high]
    longest = max(len(below), len(above))
    rates = tuple(_at(below, i) * (1 - share) + _at(above, i) * share for i in range(longest))
    return Expected(rates, f"acceptance between {_source(first)} and {_source(second)}", True)


def _source(run: int) -> str:
    """A run's number is positive, a tuning's negative."""
    return f"run {run}" if run > 0 else "calibration" if run == CALIBRATION else "the tuning"


def _at(rates: Sequence[float], position: int) -> float:
    return rates[min(position, len(rates) - 1)]
