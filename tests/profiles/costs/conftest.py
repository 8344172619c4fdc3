"""Small shapes and hardware with round figures."""

from __future__ import annotations

import pytest

from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.model import ModelShape


@pytest.fixture
def model() -> ModelShape:
    """Small enough to count by hand."""
    return ModelShape(
        name="toy", layers=2, hidden=4, intermediate=4, heads=2, kv_heads=1, head_dim=2, vocab=10,
        max_position=64,
    )  # fmt: skip


@pytest.fixture
def ideal() -> Hardware:
    """One device that reaches its data sheet: 100 bytes/s, 1,000 FLOP/s, no overhead."""
    return Hardware(
        Device("ideal", 1e6, 100.0, 1000.0, link=50.0),
        constants=Constants(
            bandwidth_efficiency=1, gemm_efficiency=1, attention_efficiency=1, link_efficiency=1
        ),
    )
