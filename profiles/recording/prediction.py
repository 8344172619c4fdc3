"""What the cost model says of a cell before it is measured."""

from __future__ import annotations

from magicdec.profiles.storage.schema import CellKey, Predicted


def predict_cell(key: CellKey) -> Predicted | None:
    """None: a prediction takes this machine's calibration, and no such thing is read here yet."""
    return None
