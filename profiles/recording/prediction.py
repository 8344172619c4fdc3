"""What this machine's calibration says of a cell before it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.engine.request import Request
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.run_prediction import Work, assume, full_step, predict_run
from magicdec.profiles.storage.schema import CellKey, Predicted, StepTimes


@dataclass(frozen=True, slots=True)
class Predictor:
    """Of cells of the model and machine that `calibration` holds for; None predicts nothing."""

    calibration: Calibration | None

    def __call__(
        self, key: CellKey, requests: Sequence[Request], new_tokens: int
    ) -> Predicted | None:
        """None without a calibration, and for rows that end with their prefill."""
        if self.calibration is None or new_tokens < 2 or key.kind != "self":
            return None
        work = Work(
            batch=min(key.batch, len(requests)),
            contexts=tuple(len(request.tokens) for request in requests),
            new_tokens=(new_tokens,) * len(requests),
            gamma=key.gamma,
            selector=key.selector or "",
            budget=key.budget,
            weights=key.draft_weights,
        )
        step = full_step(self.calibration, work)
        times = StepTimes(
            plain=float(step.plain.total),
            draft=float(step.draft.total),
            verify=float(step.verify.total),
            select=float(key.gamma * step.select),
        )
        run = predict_run(self.calibration, work, assume(self.calibration, work))
        return Predicted(run.speedup, times)
