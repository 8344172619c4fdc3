"""Settings of a run with what `magicdec run` would take from the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.request import Request
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.gamma_prices import prepared
from magicdec.profiles.run_prediction import Work
from magicdec.profiles.tree_choice import choose_tree


def calibrated(
    config: DecodeConfig, calibration: Calibration, drafter: DraftSpec, gamma: int,
    requests: Sequence[Request], batch: int,
) -> DecodeConfig:  # fmt: skip
    """Of a run of `drafter` over those rows: γ policies get prices, Sequoia the shape that pays
    most."""
    work = Work.of(drafter, gamma, requests, batch, config.max_new_tokens)
    if config.tree == "sequoia":
        chosen = choose_tree(calibration, work, config.tree_rates, nodes=config.tree_nodes)
        return replace(config, tree_shape=chosen.shape.parents)
    return prepared(config, calibration, work)
