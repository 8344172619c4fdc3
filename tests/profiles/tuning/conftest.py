"""Hand-made machines and drafters, and the command with a tiny model on a calibration of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magicdec.cli.main import run_command_line
from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.events import PHASES, PhaseTimes
from magicdec.profiles.calibration.calibration import Calibration, Selection, fingerprint_of
from magicdec.profiles.calibration.store import save_calibration
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.recorded.passes import Pass, Passes
from magicdec.profiles.tuning.candidate import Candidate, Evidence, Place
from magicdec.profiles.tuning.pricing import Memory

ROOMY = Memory(1, 2)


def drafter(budget: int = 256, selector: str = "snapkv", weights: str = "same") -> DraftSpec:
    return DraftSpec(selector, (), budget, 0.0, weights)


def evidence(gamma: int, steps: Sequence[float], tokens: int = 60) -> Evidence:
    """Rows of so many tokens each; Ω follows from the steps."""
    length = tokens * len(steps) / sum(steps)
    return Evidence(gamma, (tokens,) * len(steps), tuple(steps), length)


class Machine:
    """Every step takes the same, however many rows take part; selections by the row."""

    def __init__(
        self, plain: float = 1.0, draft: float = 0.2, verify: float = 1.0, rest: float = 0.0,
        select: float = 0.0,
    ) -> None:  # fmt: skip
        self.price, self.selection = StepTimes(plain, draft, verify, 0.0, rest), select

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepTimes[float]]:
        return [self.price] * place.batch

    def once(self, candidate: Candidate, place: Place) -> float:
        return self.selection


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """All of this module: test modules cannot import each other."""
    return SimpleNamespace(drafter=drafter, evidence=evidence, Machine=Machine, ROOMY=ROOMY)


@pytest.fixture
def model(checkpoint: Path) -> Path:
    return checkpoint


@pytest.fixture
def calibrated(model: Path, own_cache: Path) -> Callable[..., None]:
    """Stores a calibration of a machine whose draft steps take so much of a plain step."""
    from magicdec.engine.session import open_session
    from magicdec.profiles.calibration.fit import shape_of

    session = open_session(str(model), attention="sdpa")

    def store(draft: float, plain: float = 0.01) -> None:
        device = Device("by hand", 1e9, 1e12, 1e12)  # next to nothing but what a pass always costs
        hardware = Hardware(
            device, constants=Constants(launch_s=plain),
            by_weights={"int8": Constants(launch_s=plain * draft)},
        )  # fmt: skip
        save_calibration(
            Calibration(
                "2026-11-30T00:00:00+00:00", fingerprint_of(session.environment()),
                shape_of(session.spec, session.model_name), hardware,
                (Selection("snapkv", 0.001, 0.0),),
            )
        )  # fmt: skip

    return store


@pytest.fixture
def tune(
    model: Path, calibrated: Callable[..., None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:  # fmt: skip
    """Runs the command; `draft` is that of `calibrated`. Returns stdout, or stderr for errors."""
    (tmp_path / "doc.txt").write_text("All the world is a stage, and all the men merely play. " * 5)
    monkeypatch.setattr("platformdirs.user_config_dir", lambda name: str(tmp_path / "user"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(
        *arguments: str, draft: float = 0.1, plain: float = 0.01, code: int = 0,
        error: bool = False,
    ) -> str:  # fmt: skip
        calibrated(draft, plain)
        fixed = ["tune", "doc.txt", "--model", str(model), "--attention", "sdpa"]
        fixed += ["--max-new-tokens", "16", "--ignore-eos"]
        found = run_command_line([*fixed, *arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return err if error else out

    return run


@pytest.fixture
def slowed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """slowed(which, times): runs of the batches and settings that `which` picks take so many times
    as long. Then who wins does not hang on what else the machine does.
    """
    run = Passes.run

    def patch(which: Callable[[int, DecodeConfig], bool], times: float) -> None:
        def slower(self: Passes, config: DecodeConfig, listen: Any) -> Pass:
            done = run(self, config, listen)
            factor = times if which(self.batch, config) else 1.0
            phases = PhaseTimes(*(factor * getattr(done.report.phases, name) for name in PHASES))
            tpot = factor * (done.report.tpot_s or 0)
            return replace(done, report=replace(done.report, phases=phases, tpot_s=tpot))

        monkeypatch.setattr(Passes, "run", slower)

    return patch
