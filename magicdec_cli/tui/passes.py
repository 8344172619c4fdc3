"""What the passes of a run decode with, and when a plain pass need not be made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from magicdec.cli.gamma_view import choice
from magicdec.cli.knobs import KNOBS, Settings
from magicdec.cli.trees import with_shape
from magicdec.engine.config import DecodeConfig
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.request import Request


def run_config(
    settings: Settings, environment: Mapping[str, object], requests: Sequence[Request]
) -> tuple[DecodeConfig, tuple[str, ...]]:
    """As `magicdec run` has it: with a tree's shape and the prices of a γ that changes, by this
    machine's calibration where one holds; and a line about each."""
    from magicdec.cli.gamma import with_calibration  # numpy

    config, shape = with_shape(settings.decode_config(), settings, environment, requests)
    config = with_calibration(config, settings, environment, requests)
    policy = config.gamma_policy
    how = "" if policy == FIXED else f"γ {policy.name}: {choice(policy)}"
    return config, tuple(line for line in (shape, how) if line)


def plain_key(settings: Settings) -> str:
    """Equal for settings that decode the same plain tokens: those that differ in drafting alone."""
    drafting: dict[str, Any] = {k.name: k.default for k in KNOBS if k.group == "Speculation"}
    return repr(dataclasses.replace(settings, gamma_policy=FIXED.name, **drafting))
