"""The policy of a run: what --gamma names, with what this machine's calibration knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from magicdec.cli.knobs import ADAPTIVE, AUTO, Settings
from magicdec.cli.prediction import usable_calibration, work_of
from magicdec.engine.config import SELF, DecodeConfig
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.policy import GammaPolicy
from magicdec.engine.request import Request
from magicdec.profiles.gamma_prices import CalibratedPrices, adaptive, first_guess


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
    work = work_of(settings, env, requests)
    policy: GammaPolicy
    if settings.gamma_policy == ADAPTIVE:
        policy = adaptive(calibration, work)
    else:
        guess, assumed = first_guess(calibration, work)
        source = f"calibration of {calibration.created[:10]}, acceptance at first {assumed.source}"
        policy = Auto(CalibratedPrices(calibration, work), guess, source)
    return dataclasses.replace(config, gamma_policy=policy)


def _priced(settings: Settings) -> bool:
    """Calibrations know the model that drafts for itself; others go by the run's own times."""
    return settings.draft == SELF and settings.draft_kv == "selected"
