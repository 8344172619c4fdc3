"""What this machine's calibration says of a cell before it is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from magicdec.engine.draft_spec import NO_TREE
from magicdec.engine.request import Request
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.costs.shapes import ModelShape
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.lookup_prediction import expected_of_lookup
from magicdec.profiles.run_prediction import Work, assume, full_step, predict_run
from magicdec.profiles.storage.schema import CellKey, Predicted


@dataclass(frozen=True, slots=True)
class Predictor:
    """Of cells of the model and machine that `calibration` holds for; None predicts nothing.

    shape: the sizes of the draft model that a cell names.
    """

    calibration: Calibration | None
    shape: Callable[[str], ModelShape | None] = lambda name: None

    def __call__(
        self, key: CellKey, requests: Sequence[Request], new_tokens: int
    ) -> Predicted | None:
        """None without a calibration, and for rows that end with their prefill."""
        if (
            self.calibration is None
            or new_tokens < 2
            or key.tree != NO_TREE
            or key.kind == "cascade"
            or not key.fixed
        ):
            return None
        model = self.shape(key.draft) if key.kind == "model" else None
        if key.kind == "model" and model is None:
            return None
        work = Work.of(key.drafter, key.gamma, requests, key.batch, new_tokens, model)
        step = full_step(self.calibration, work)
        times = StepTimes(
            plain=float(step.plain),
            draft=float(step.draft_pass.total),
            verify=float(step.verify),
            select=float(key.gamma * step.search + step.refresh),
            rest=None,
        )
        if key.kind == "layers":  # what is accepted of an early exit cannot be assumed
            return Predicted(None, times)
        if key.kind == "lookup":
            assumed = expected_of_lookup([r.tokens for r in requests], new_tokens, key.gamma)
        else:
            assumed = assume(self.calibration, work)
        run = predict_run(self.calibration, work, assumed)
        return Predicted(run.speedup, times)
