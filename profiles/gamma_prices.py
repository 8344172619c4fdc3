"""What a calibration says to a policy that chooses γ. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import MOST_CHOSEN, Adaptive, GammaPolicy
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.costs.speculation import StepCosts, tokens_per_step_of
from magicdec.profiles.run_prediction import Assumed, Work, assume, costs_at

GRAIN = 256  # tokens of context that are priced alike: a step must not wait for its price
#: What a threshold may be: below one half a draft of two sure tokens would be cut.
LEAST_STOP, MOST_STOP = 0.05, 0.9


@dataclass(frozen=True, slots=True)
class CalibratedPrices:
    """`engine.gamma.auto.Prices` of one run's drafter."""

    calibration: Calibration
    work: Work
    _known: dict[tuple[int, int, int], float] = field(default_factory=dict, compare=False)

    def step(self, rows: int, context: float, gamma: int) -> float:
        place = rows, round(context / GRAIN), gamma
        if place not in self._known:
            found = self._costs(rows, max(1, place[1]) * GRAIN, gamma)
            seconds = found.step(gamma) if gamma else found.plain.total
            self._known[place] = float(seconds)
        return self._known[place]

    def prepare(self, context: float) -> float:
        chooser = self.work.drafter.chooser
        selection = None if chooser is None else self.calibration.selection(chooser)
        return 0.0 if selection is None else selection.seconds(context)

    def _costs(self, rows: int, context: float, gamma: int) -> StepCosts:
        return costs_at(self.calibration, self.work, rows, context, gamma)


def first_guess(calibration: Calibration, work: Work) -> tuple[float, Assumed]:
    """Acceptance of a draft token before the run has shown any, and where it comes from."""
    assumed = assume(calibration, work)
    return sum(assumed.rates) / len(assumed.rates), assumed


def adaptive_stop(calibration: Calibration, work: Work) -> float:
    """The share of a draft step in the time of a token, at the best fixed γ: a draft token that
    counts less often than that costs more than it brings. It includes what verifying it takes.
    """
    prices, (acceptance, _) = CalibratedPrices(calibration, work), first_guess(calibration, work)
    context = sum(work.contexts) / len(work.contexts)
    steps = [prices.step(work.batch, context, gamma) for gamma in range(MOST_CHOSEN + 1)]
    tokens = [tokens_per_step_of([acceptance] * gamma, gamma) for gamma in range(len(steps))]
    token_s = min(step / omega for step, omega in zip(steps, tokens, strict=True))
    one_more = (steps[-1] - steps[1]) / (MOST_CHOSEN - 1)
    return min(MOST_STOP, max(LEAST_STOP, one_more / token_s))


def adaptive(calibration: Calibration, work: Work) -> Adaptive:
    stop = round(adaptive_stop(calibration, work), 3)
    return Adaptive(stop, f"calibration of {calibration.created[:10]}")


def prepared(config: DecodeConfig, calibration: Calibration, work: Work) -> DecodeConfig:
    """The settings with `priced`, as far as calibrations time the drafter: the model itself over a
    selection. All others go by the run's own times."""
    if work.drafter.kind != "self" or work.drafter.budget is None:
        return config
    return replace(config, gamma_policy=priced(config.gamma_policy, calibration, work))


def priced(policy: GammaPolicy, calibration: Calibration, work: Work) -> GammaPolicy:
    """The policy with what a calibration says that knows the run's drafter: `adaptive` and `auto`
    go by it."""
    match policy:
        case Adaptive():
            return adaptive(calibration, work)
        case Auto():
            guess, assumed = first_guess(calibration, work)
            day = calibration.created[:10]
            source = f"calibration of {day}, acceptance at first {assumed.source}"
            return Auto(CalibratedPrices(calibration, work), guess, source)
    return policy
