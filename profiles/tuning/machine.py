"""Step times of this machine, from its calibration. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from magicdec.engine.selectors.base import SELECTORS
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.storage.drafter import Drafter
from magicdec.profiles.tuning.candidate import Candidate, Place
from magicdec.profiles.tuning.pricing import StepPrice

WEIGHT_BYTES = {"int8": 1.0}


@dataclass(frozen=True, slots=True)
class CalibratedPrices:
    """prompts: mean prompt tokens of a row by context, where rows are shorter than that; growth:
    tokens that a row has gained on average while it is decoded, half its output."""

    calibration: Calibration
    prompts: Mapping[int, float]
    growth: float

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepPrice]:
        found, drafter = self.calibration, candidate.drafter
        prompt = self.prompts.get(place.context, float(place.context))
        weights = drafter.draft_weights if drafter else "same"
        costs = step_costs(
            found.model, found.hardware,
            Drafting(
                budget=None if drafter is None else self._read(drafter, prompt),
                weights=weights, weight_bytes=WEIGHT_BYTES.get(weights),
            ),
            rows=np.arange(1, place.batch + 1), context=prompt + self.growth,
            gamma=candidate.gamma, weight_bytes=found.weight_bytes, kv_bytes=found.kv_bytes,
        )  # fmt: skip
        totals = (costs.plain.total, costs.draft.total + costs.select, costs.verify.total)
        select = 0.0 if drafter is None else self._selection(drafter, prompt)
        return [
            StepPrice(float(plain), float(draft), float(verify), costs.accept, select)
            for plain, draft, verify in zip(*totals, strict=True)
        ]

    def unknown(self, drafter: Drafter) -> bool:
        """Whether its one-off selection was not measured, and is priced at nothing."""
        selector = _selector(drafter)
        return selector is not None and self.calibration.selection(selector) is None

    def _read(self, drafter: Drafter, prompt: float) -> int | None:
        """Entries of a draft step, None for all: accepted tokens come on top of the budget, unless
        the selector has them replace others."""
        if drafter.selector is None or drafter.budget is None:
            return None
        selector = SELECTORS.create(drafter.selector, dict(drafter.selector_options))
        kept = min(drafter.budget, prompt)
        return round(kept if selector.ring(drafter.budget) is not None else kept + self.growth)

    def _selection(self, drafter: Drafter, prompt: float) -> float:
        selector = _selector(drafter)
        known = None if selector is None else self.calibration.selection(selector)
        return 0.0 if known is None else known.seconds(prompt)


def _selector(drafter: Drafter) -> str | None:
    """What selects; None where nothing is left out."""
    return None if drafter.budget is None else drafter.selector
