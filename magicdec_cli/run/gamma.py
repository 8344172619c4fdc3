"""The policy of a run: what --gamma names, with what this machine's calibration knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from magicdec.cli.run.prediction import usable_calibration, work_of
from magicdec.cli.settings.knobs import ADAPTIVE, AUTO, Settings
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import SELF
from magicdec.engine.request import Request
from magicdec.profiles.predict.settings import priced


def with_calibration(
    config: DecodeConfig, settings: Settings, env: Mapping[str, object],
    requests: Sequence[Request],
) -> DecodeConfig:  # fmt: skip
    """`config` with prices for its policy, where there is a calibration that holds for the run."""
    if settings.gamma_policy not in (AUTO, ADAPTIVE) or not _priced(settings):
        return config
    calibration, _ = usable_calibration(settings, env)
    if calibration is None:
        return config
    policy = priced(config.gamma_policy, calibration, work_of(settings, env, requests))
    return dataclasses.replace(config, gamma_policy=policy)


def _priced(settings: Settings) -> bool:
    """Calibrations know the model that drafts for itself; others go by the run's own times."""
    return settings.draft == SELF and settings.draft_kv == "selected"
