"""Predictions for this machine, from what `magicdec calibrate` stored. Without torch."""

from __future__ import annotations

from dataclasses import replace

from magicdec.engine.errors import ConfigError, require
from magicdec.profiles.acceptance.rates import AcceptanceRates
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.calibration.store import known_here, load_calibration

SELECTOR = "snapkv"  # `run`'s default


def this_machine() -> Calibration:
    """The newest calibration that holds here. Raises ConfigError when none does, saying why."""
    current = known_here()
    calibration = load_calibration(None, current)
    if calibration is None:
        raise ConfigError(
            "no hardware to predict for: give --hardware, say 8xH100, or run magicdec calibrate"
        )
    stale = calibration.stale_because(current)
    require(
        not stale,
        f"the calibration of {calibration.created[:10]} is stale: {stale}; "
        "run magicdec calibrate again, or give --hardware",
    )
    return calibration


def acceptance_here(
    calibration: Calibration, budget: int | None, gamma: int, weights: str
) -> AcceptanceRates | None:
    """What real steps accepted while calibrating, at the nearest budget; None if that is unknown.

    Positions beyond the last one measured are taken to be like it.
    """
    known = None if budget is None else calibration.acceptance(SELECTOR, budget, weights)
    if known is None:
        return None
    found = AcceptanceRates(
        known.rates,
        f"the calibration ({SELECTOR} {known.budget}, {known.weights} weights, "
        f"{known.drafted:,} drafted tokens)",
    )
    return replace(found, rates=found.padded(max(gamma, len(known.rates))))
