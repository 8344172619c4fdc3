"""Step times of this machine, from its calibration. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.costs.passes import forward
from magicdec.profiles.costs.shapes import ModelShape
from magicdec.profiles.costs.speculation import Drafting, step_costs
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.drafter_costs import Row, drafting_of, layers_of
from magicdec.profiles.tuning.candidate import Candidate, Place


@dataclass(frozen=True, slots=True)
class CalibratedPrices:
    """prompts: mean prompt tokens of a row by context, where rows are shorter than that; growth:
    tokens that a row has gained on average while it is decoded, half its output; models: sizes of
    those that draft for another, by name."""

    calibration: Calibration
    prompts: Mapping[int, float]
    growth: float
    models: Mapping[str, ModelShape] = field(default_factory=dict)

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepTimes[float]]:
        found, drafter = self.calibration, candidate.drafter
        prompt = self._prompt(place)
        return step_costs(
            found.model, found.hardware,
            Drafting() if drafter is None else drafting_of(
                drafter, found.model, Row(prompt, self.growth), found.kv_bytes,
                self.models.get(drafter.draft),
            ),
            rows=np.arange(1, place.batch + 1), context=prompt + self.growth,
            gamma=candidate.gamma, weight_bytes=found.weight_bytes, kv_bytes=found.kv_bytes,
        ).cells()  # fmt: skip

    def unknown(self, drafter: DraftSpec) -> bool:
        """Whether its one-off selection was not measured, and is priced at nothing."""
        selector = drafter.chooser
        return selector is not None and self.calibration.selection(selector) is None

    def _prompt(self, place: Place) -> float:
        return self.prompts.get(place.context, float(place.context))

    def once(self, candidate: Candidate, place: Place) -> float:
        """Seconds that admitting a row takes: its selection, in proportion to the layers that it
        is made in, and the prefill of another model's own cache."""
        drafter, prompt = candidate.drafter, self._prompt(place)
        if drafter is None:
            return 0.0
        found, own = self.calibration, self.models.get(drafter.draft)
        layers = own.layers if own else found.model.layers
        if drafter.kind == "layers":
            layers = layers_of(drafter, found.model)
        select = found.selecting(drafter.chooser, prompt) * layers / found.model.layers
        if own is None:
            return select
        prefill = forward(
            own, found.hardware, rows=1, entries=prompt / 2, new=prompt,
            weight_bytes=found.weight_bytes, kv_bytes=found.kv_bytes,
        )  # fmt: skip
        return select + float(prefill.total)
