"""A cell's settings with what `magicdec run` would take from the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magicdec.engine.config import DecodeConfig
from magicdec.engine.request import Request
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.run_settings import calibrated
from magicdec.profiles.storage.schema import CellKey


@dataclass(frozen=True, slots=True)
class Preparation:
    """Of cells of the model and machine that `calibration` holds for. Without one settings stay as
    they are."""

    calibration: Calibration | None

    def __call__(
        self, key: CellKey, config: DecodeConfig, requests: Sequence[Request]
    ) -> DecodeConfig:
        if self.calibration is None:
            return config
        return calibrated(config, self.calibration, key.drafter, key.gamma, requests, key.batch)
