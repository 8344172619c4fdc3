"""A calibration made by hand, of a machine whose constants are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from magicdec.profiles.calibration.calibration import Accepted, Calibration, Residuals, Selection
from magicdec.profiles.costs.catalog import find_model
from magicdec.profiles.costs.hardware import Constants, Device, Hardware

MARK: dict[str, Any] = {
    "model": "smollm2-135m", "parameters": 162_791_424, "dtype": "float32", "kv_dtype": "float32",
    "device": "cpu", "device_name": "Some CPU", "threads": 2, "attention": "native",
    "magicdec": "0.1.0", "torch": "2.13.0",
}  # fmt: skip
TRUE = Constants(
    layer_s=0.0003, bandwidth_efficiency=0.8, gemm_efficiency=0.5, attention_efficiency=0.4,
    overlap=2.0, step_s=0.001,
)  # fmt: skip
TWIN = Constants(
    layer_s=0.0002, compact_s=2e-5, bandwidth_efficiency=0.7, gemm_efficiency=0.9,
    attention_efficiency=0.4, overlap=2.0,
)  # fmt: skip


def make_calibration(**mark: Any) -> Calibration:
    return Calibration(
        created="2026-11-29T10:00:00+00:00",
        fingerprint={**MARK, **mark},
        model=find_model("smollm2-135m"),
        hardware=Hardware(
            Device("Some CPU, 2 threads", 8e9, 20e9, 200e9),
            constants=TRUE,
            by_weights={"int8": TWIN},
            provenance="made by hand",
        ),
        selections=(Selection("snapkv", 0.01, 4e-5), Selection("streaming", 0.004, 0.0)),
        acceptances=(
            Accepted("snapkv", 256, "int8", 300, (0.9, 0.8, 0.7)),
            Accepted("snapkv", 64, "int8", 300, (0.6,)),
        ),
        residuals=(Residuals("plain", 9, 0.03, 0.08, -0.01),),
    )


@pytest.fixture
def calibration() -> Any:
    return make_calibration


@pytest.fixture(autouse=True)
def cache(own_cache: Path) -> Path:
    return own_cache
