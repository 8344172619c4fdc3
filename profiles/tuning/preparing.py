"""Candidates as settings of a run, with what `magicdec run` would take from the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.request import Request
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.files.gamma_names import policy_of
from magicdec.profiles.predict.settings import calibrated
from magicdec.profiles.tuning.candidate import Candidate


def config_of(candidate: Candidate, base: DecodeConfig) -> DecodeConfig:
    """The run of a candidate; all else as in `base`."""
    drafter = candidate.drafter
    if drafter is None:
        return replace(base, gamma=0)
    return base.drafted_by(drafter, candidate.gamma, policy_of(drafter.gamma_policy))


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Of runs over those rows in a batch, each candidate's made once."""

    base: DecodeConfig
    calibration: Calibration
    requests: Sequence[Request]
    batch: int
    _made: dict[Candidate, DecodeConfig] = field(default_factory=dict)

    def __call__(self, candidate: Candidate) -> DecodeConfig:
        if candidate not in self._made:
            self._made[candidate] = self._prepared(candidate)
        return self._made[candidate]

    def _prepared(self, candidate: Candidate) -> DecodeConfig:
        config, drafter = config_of(candidate, self.base), candidate.drafter
        if drafter is None:
            return config
        return calibrated(
            config, self.calibration, drafter, candidate.gamma, self.requests, self.batch
        )
