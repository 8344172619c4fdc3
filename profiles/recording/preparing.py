"""A cell's settings with what `magicdec run` would take from the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.engine.config import DecodeConfig
from magicdec.engine.request import Request
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.gamma_prices import prepared
from magicdec.profiles.run_prediction import Work
from magicdec.profiles.storage.schema import CellKey


@dataclass(frozen=True, slots=True)
class Preparation:
    """Of cells of the model and machine that `calibration` holds for. Without one, and for a fixed
    γ or a schedule, settings stay as they are."""

    calibration: Calibration | None

    def __call__(
        self, key: CellKey, config: DecodeConfig, requests: Sequence[Request]
    ) -> DecodeConfig:
        if self.calibration is None or key.fixed:
            return config
        new_tokens = config.max_new_tokens
        work = Work.of(key.drafter, key.gamma, requests, key.batch, new_tokens)
        return prepared(config, self.calibration, work)
