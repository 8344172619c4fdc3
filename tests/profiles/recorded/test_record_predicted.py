"""Cells carry what a calibration said of them, when one holds here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from magicdec.engine.request import Request
from magicdec.profiles.calibration.calibration import Accepted, Calibration
from magicdec.profiles.costs.catalog import find_model
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.record import Predictor
from magicdec.profiles.recorded.schema import CellKey

MADE = Calibration(
    created="2026-11-29T10:00:00+00:00",
    fingerprint={"model": "any", "dtype": "float32", "kv_dtype": "float32"},
    model=find_model("smollm2-135m"),
    hardware=Hardware(
        Device("Some CPU", 8e9, 20e9, 200e9), constants=Constants(layer_s=0.0003, step_s=0.001)
    ),
    acceptances=(Accepted("streaming", 256, "same", 300, (0.9,)),),
)
KEY = CellKey(
    batch=2, context=4000, selector="streaming", budget=256, gamma=3, temperature=0.0,
    draft_weights="same",
)  # fmt: skip
ROWS = [Request(f"doc{i}", (1,) * 4000, i) for i in range(2)]


def test_a_prediction_is_that_of_the_cost_model() -> None:
    predict = Predictor(MADE)
    found = predict(KEY, ROWS, 64)
    assert found is not None and found.speedup is not None
    step = found.step
    assert step.plain and step.draft and step.verify
    assert step.select == 0, "chosen once, before the first step"
    assert step.draft < step.plain < step.verify, "drafts read less, a verify pass computes more"
    # By hand: Ω of three positions at 0.9, over T_T / (γ·T_D + T_V); row ends cost a little.
    omega = 1 + 0.9 + 0.81 + 0.729
    assert found.speedup == pytest.approx(
        omega * step.plain / (3 * step.draft + step.verify), rel=0.15
    )
    worse = replace(MADE, acceptances=(Accepted("streaming", 256, "same", 300, (0.2,)),))
    less = Predictor(worse)(KEY, ROWS, 64)
    assert less is not None and less.speedup is not None and less.speedup < found.speedup
    whole = predict(replace(KEY, selector="full"), ROWS, 64)
    assert whole is not None and whole.step.draft is not None
    assert whole.step.draft > step.draft, "the whole cache is read by its drafts"


WAYS = [
    {"draft": "lookup"}, {"draft": "layers:10"}, {"draft_kv": "full"},
    {"draft": "small", "draft_kv": "full"}, {"draft": "small"},
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way.values()))
def test_every_drafter_is_priced(way: dict[str, str]) -> None:
    small = replace(MADE.model, name="small", layers=10)
    predict = Predictor(MADE, lambda name: small if name == "small" else None)
    repeats = [Request(f"doc{i}", (1, 2, 3, 4, 5) * 800, i) for i in range(2)]
    found, itself = (predict(key, repeats, 64) for key in (replace(KEY, **way), KEY))
    assert found is not None and found.step.draft and itself is not None
    assert (found.speedup is None) == (way.get("draft") == "layers:10"), "nothing is assumed of it"
    assert found.step.plain == itself.step.plain and found.step.verify == itself.step.verify
    assert itself.step.draft is not None and found.step.draft is not None
    if way.get("draft") == "lookup":
        assert found.step.draft < itself.step.draft / 10, "no model runs"
        assert found.speedup and itself.speedup and found.speedup > itself.speedup, (
            "the document repeats itself"
        )
        new = predict(replace(KEY, **way), [Request("n", tuple(range(4000)), 0)], 64)
        assert new is not None and new.speedup is not None and new.speedup < 1.01
    elif way.get("draft_kv") is None:
        assert found.step.draft < itself.step.draft, "fewer layers"


def test_a_draft_model_of_unknown_sizes_is_not_predicted() -> None:
    assert Predictor(MADE)(replace(KEY, draft="small"), ROWS, 64) is None


def test_nothing_is_predicted_without_a_calibration_or_steps() -> None:
    assert Predictor(None)(KEY, ROWS, 64) is None
    assert Predictor(MADE)(KEY, ROWS, 1) is None


@pytest.mark.parametrize("holds", [True, False])
def test_only_a_calibration_that_holds_is_used(
    record: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    def nearest(model: str, fingerprint: dict[str, str | int]) -> Calibration:
        changes = {} if holds else {"torch": "0.0"}
        return replace(MADE, fingerprint={**fingerprint, **changes})

    monkeypatch.setattr("magicdec.cli.run.prediction.load_calibration", nearest)
    path = tmp_path / "sweep.jsonl"
    assert record("-o", str(path), "--context", "60", "--gamma", "2") == 0
    (cell,) = read_profile(path).cells
    if not holds:
        assert cell.predicted is None
        return
    assert cell.predicted is not None and cell.predicted.step.plain is not None
    assert cell.predicted.speedup is not None and cell.predicted.speedup > 0
