"""What acceptance to expect of settings: measured by earlier runs, or else assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from magicdec.cli.output.numbers import rate
from magicdec.cli.settings.knobs import DECODE, Settings
from magicdec.engine.gamma.auto import ASSUMED
from magicdec.profiles.acceptance.rates import (
    AcceptanceRates,
    Rates,
    conditional_rates,
    interpolated,
)

Kind = tuple[object, ...]
GREEDY = (0.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0)  # temperature, top-k, top-p, min-p, penalties
OWN = (DECODE.draft, DECODE.draft_kv)  # the model drafts for itself
CALIBRATION = 0  # in place of a run's number


@dataclass(slots=True)
class Book:
    """The latest rates by drafter and budget. The text counts too, but a book has one text."""

    _known: dict[Kind, dict[int, tuple[Rates, int]]] = field(default_factory=dict)

    def learn(self, run: int, settings: Settings, weights: str, shares: Sequence[float]) -> None:
        """`shares`: of the steps that drafted position i, those that accepted it."""
        rates = conditional_rates(shares)
        if rates:
            budgets = self._known.setdefault(_kind(settings, weights), {})
            budgets[settings.budget] = (rates, run)

    def learn_calibrated(self, selector: str, budget: int, weights: str, rates: Rates) -> None:
        """Greedy, and with the selector's default options."""
        if rates:
            kind = (*OWN, selector, (), weights, *GREEDY)
            self._known.setdefault(kind, {}).setdefault(budget, (rates, CALIBRATION))

    def expect(self, settings: Settings, weights: str) -> AcceptanceRates | None:
        """Between two measured budgets rates are interpolated over log(budget); beyond, held.

        None where nothing can be assumed: early exits, which untrained are accepted next to never.
        """
        budgets = self._known.get(_kind(settings, weights))
        if not budgets:
            if settings.who.layers is not None:
                return None
            told = f"acceptance assumed {rate(ASSUMED)}"
            return AcceptanceRates((ASSUMED,), told, assumed=True)
        known = {place: rates for place, (rates, _) in budgets.items()}
        rates, (low, high) = interpolated(known, settings.budget)
        below, above = (_source(budgets[place][1]) for place in (low, high))
        if low < high:
            return AcceptanceRates(rates, f"acceptance between {below} and {above}")
        held = "" if low == settings.budget else f" (budget {low:,})"
        return AcceptanceRates(rates, f"acceptance of {below}{held}")


def _kind(settings: Settings, weights: str) -> Kind:
    options = tuple(sorted((key, str(v)) for key, v in settings.selector_option.items()))
    sampling = (
        settings.temperature, settings.top_k, settings.top_p, settings.min_p, *settings.penalties,
    )  # fmt: skip
    return (settings.draft, settings.draft_kv, settings.selector, options, weights, *sampling)


def _source(run: int) -> str:
    """A run's number is positive, a tuning's negative."""
    return f"run {run}" if run > 0 else "calibration" if run == CALIBRATION else "the tuning"
