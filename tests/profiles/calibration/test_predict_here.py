"""`magicdec predict` without --hardware: this machine, as it was calibrated."""

from __future__ import annotations

import json

import pytest

from magicdec.cli.main import run_command_line
from magicdec.profiles.calibration.store import known_here, save_calibration

ASKED = ["predict", "--batch", "2", "--context", "1000", "--gamma", "2", "--format", "json"]


def predicted(capsys: pytest.CaptureFixture[str], *more: str) -> dict:
    assert run_command_line([*ASKED, *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_prices_with_the_calibrated_constants_precision_and_acceptance(calibration, capsys):
    from magicdec.profiles.costs.speculation import Drafting, step_costs

    here = calibration(**known_here())
    save_calibration(here)
    [cell] = predicted(capsys, "--budget", "256")["cells"]
    costs = step_costs(
        here.model, here.hardware, Drafting(256, weights="int8", weight_bytes=1), rows=2,
        context=1000, gamma=2, weight_bytes=4, kv_bytes=4,
    )  # fmt: skip
    omega = 1 + 0.9 + 0.9 * 0.8
    assert cell["tokens_per_step"] == pytest.approx(omega)
    assert cell["speedup"] == pytest.approx(float(costs.speedup(2, omega)))


def test_another_budget_takes_the_acceptance_of_the_nearest(calibration, capsys):
    save_calibration(calibration(**known_here()))
    [cell] = predicted(capsys, "--budget", "100")["cells"]
    assert cell["tokens_per_step"] == pytest.approx(1 + 0.6 + 0.6**2)


def test_another_model_is_priced_with_a_note_and_an_assumed_acceptance(calibration, capsys):
    save_calibration(calibration(**known_here()))
    document = predicted(capsys, "--model", "llama-3.2-1b")
    said = " ".join(document["notes"])
    assert "fitted with SmolLM2-135M" in said and "assumption" in said


def test_a_stale_calibration_is_named_and_not_used(calibration, capsys):
    save_calibration(calibration(**{**known_here(), "torch": "1.0"}))
    assert run_command_line(ASKED) == 2
    said = capsys.readouterr().err
    assert "stale: torch 1.0 →" in said and "magicdec calibrate" in said
