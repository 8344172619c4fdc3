"""What `magicdec run` says of its prediction, with a session without a model."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from magicdec.cli import session_api
from magicdec.cli.main import run_command_line
from magicdec.profiles.calibration.store import calibration_path, save_calibration

FAKE = Path(__file__).parents[2] / "fake_session.py"
PLAIN = ("--batch", "4", "--context", "4000")
RUN = (*PLAIN, "--budget", "256", "--selector", "snapkv")


def load_fake() -> ModuleType:
    spec = importlib.util.spec_from_file_location("magicdec_fake_for_predictions", FAKE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fake = load_fake()
Ran = Callable[..., tuple[str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Ran:
    document = tmp_path / "doc.txt"
    document.write_text("Some long document.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setattr(session_api, "open_session", session_api.open_session)
    plugin = fake.SELECTOR.partition(":")[0]
    monkeypatch.setitem(sys.modules, plugin, ModuleType(plugin))

    def command(
        *arguments: str, scene: str = "", code: int = 0, asked: Sequence[str] = RUN
    ) -> tuple[str, str]:
        fake.install(fake.FakeSession(scene))
        assert run_command_line(["run", str(document), *asked, *arguments]) == code
        out, err = capsys.readouterr()
        return out, err

    return command


@pytest.fixture
def calibrated(calibration: Any) -> Any:
    """One that fits what the fake session says of itself."""
    made = calibration(attention="sdpa")
    save_calibration(made)
    return made


def test_the_prediction_stands_before_and_beside_the_run(run: Ran, calibrated: Any) -> None:
    out, err = run("--compare")
    (line,) = [line for line in err.splitlines() if "predicted" in line]
    assert "calibration of 2026-11-29" in line and "acceptance" in line
    assert err.index(line) < err.index("plain: 4 rows"), "before decoding"
    record = json.loads(run("--compare", "--json")[0])
    predicted = record["predicted"]
    assert f"speedup {predicted['decode']:.2f}×" in line
    error = 100 * (predicted["decode"] / record["speedup"]["decode"] - 1)
    assert predicted["error_pct"] == pytest.approx(error)
    assert f"error {error:+.1f}%" in out and predicted["explanation"] in out


def test_what_penalties_do_to_acceptance_no_calibration_saw(run: Ran, calibrated: Any) -> None:
    plain, penalised = (run(*more)[1] for more in ((), ("--repetition-penalty", "1.2")))
    assert "without penalties)" in penalised and "without penalties" not in plain
    assert "repetition 1.2" in run("--repetition-penalty", "1.2")[0]


def test_the_terms_make_up_the_error(run: Ran, calibrated: Any) -> None:
    predicted = json.loads(run("--compare", "--json")[0])["predicted"]
    sizes = [abs(term["percent"]) for term in predicted["terms"]]
    assert sizes == sorted(sizes, reverse=True)
    names = {term["name"] for term in predicted["terms"]}
    assert names == {"acceptance", "select", "draft", "verify", "overhead", "plain"}
    own = predicted["with_own_acceptance"]
    # The fake's plain step takes 41 to 46 ms, its verify 49 to 54.
    verify = next(term for term in predicted["terms"] if term["name"] == "verify")
    assert 49 <= verify["measured"] <= 54
    assert verify["predicted"] == pytest.approx(
        1e3 * own["seconds"]["verify"] / own["seconds"]["steps"]
    )


def test_without_a_plain_run_there_is_an_explanation_but_no_error(
    run: Ran, calibrated: Any
) -> None:
    predicted = json.loads(run("--json")[0])["predicted"]
    assert predicted["decode"] > 0 and predicted["error_pct"] is None
    assert predicted["explanation"].startswith("mostly ")
    out, _ = run()
    assert "mostly" in out and "error" not in out


def test_an_interrupted_run_is_not_judged(run: Ran, calibrated: Any) -> None:
    out, _ = run("--compare", "--json", scene="interrupt", code=130)
    predicted = json.loads(out)["predicted"]
    assert predicted["decode"] > 0 and predicted["error_pct"] is None
    assert "explanation" not in predicted


def test_a_stale_one_is_named(run: Ran, calibration: Any) -> None:
    save_calibration(calibration(attention="sdpa", threads=8, dtype="bfloat16"))
    out, err = run("--json")
    assert json.loads(out)["predicted"] is None
    assert "stale (dtype bfloat16 → float32, threads 8 → 2); run `magicdec calibrate`" in err


def test_a_damaged_one_does_not_stop_a_run(run: Ran, calibrated: Any) -> None:
    calibration_path(calibrated.fingerprint).write_text("{")
    out, err = run("--json", "--compare")
    assert json.loads(out)["predicted"] is None
    assert "no prediction: " in err and "not valid JSON" in err


def test_the_hint_appears_only_where_a_speedup_is_asked_for(run: Ran) -> None:
    assert "magicdec calibrate" not in run()[1]
    assert run("--compare")[1].count("magicdec calibrate") == 1
    assert "magicdec calibrate" not in run("--compare", "--quiet")[1]


def test_plain_decoding_predicts_nothing(run: Ran, calibrated: Any) -> None:
    out, err = run("--gamma", "0", "--json", asked=PLAIN)
    assert json.loads(out)["predicted"] is None and "predicted" not in err
