"""γ policies in a sweep: cells beside those of numbers, run as `magicdec run` would run them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from magicdec.cli.main import run_command_line
from magicdec.cli.settings.grids import Ahead, gammas, grid_values, read_grids
from magicdec.engine.config import SIBLING_RATES
from magicdec.engine.errors import ConfigError
from magicdec.engine.gamma.policy import Adaptive, Entry, GammaPolicy
from magicdec.engine.session import Session
from magicdec.engine.trees.shape import ShapeSearch
from magicdec.profiles.calibration.calibration import Accepted, Calibration
from magicdec.profiles.costs.catalog import find_model
from magicdec.profiles.costs.hardware import Constants, Device, Hardware
from magicdec.profiles.files import gamma_schedule
from magicdec.profiles.files.gamma_schedule import schedule_text
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.record import Bench

Record = Callable[..., int]
BUDGET = ("--budget", "24")  # which lookup has no use for
SMALL = ("--context", "80", *BUDGET, "--max-new-tokens", "12", "--repeat", "1")


def schedule(path: Path, gamma: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(schedule_text([Entry(1, 1, gamma)]))
    return path


def test_policies_are_cells_beside_numbers(
    record: Record, document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = tmp_path / "gammas.jsonl", schedule(tmp_path / "mine" / "plan.toml", 2)
    grid = ("-o", str(path), "--gamma", f"2,adaptive,auto,{plan}", "--draft", "self,lookup")
    assert record(*grid, grid=SMALL) == 0
    assert capsys.readouterr().err.splitlines() == [
        "note: no cells of γ adaptive with lookup, which has no probabilities"
    ]
    profile = read_profile(path)
    named = profile.header.grid.gamma_policy[-1]
    assert re.fullmatch(r"plan\.toml@[0-9a-f]{6}", named)
    assert [(cell.key.way, cell.key.gamma) for cell in profile.cells] == [
        ("snapkv 24", 2), ("snapkv 24 adaptive", 8), ("snapkv 24 auto", 8),
        (f"snapkv 24 {named}", 2), ("lookup", 2), ("lookup auto", 8), (f"lookup {named}", 2),
    ]  # fmt: skip
    assert profile.header.grid.gamma == (2, 8)
    assert profile.header.grid.gamma_policy == ("fixed", "adaptive", "auto", named)
    for cell in profile.cells:
        assert cell.status == "ok" and cell.lossless.ok and cell.speedup and not cell.predicted
        # A row-step drafts nothing, or some of the most that it may.
        assert cell.mean_gamma is not None and 0 <= cell.mean_gamma <= cell.key.gamma
    by_way = {cell.key.way: cell for cell in profile.cells}
    planned, number = by_way[f"snapkv 24 {named}"], by_way["snapkv 24"]
    assert planned.mean_gamma == number.mean_gamma, "a schedule of one γ is that γ"
    assert planned.accepted_per_step == number.accepted_per_step

    before = path.read_bytes()
    assert str(tmp_path).encode() not in before, "no folder of the user's"
    assert record(*grid, grid=SMALL) == 0 and path.read_bytes() == before, "all of it was there"
    capsys.readouterr()
    for command in ("show", "compare"):
        files = [str(path)] * (2 if command == "compare" else 1)
        assert run_command_line(["profile", command, *files]) == 0
        assert "snapkv 24 adaptive" in capsys.readouterr().out
    assert run_command_line(["profile", "export", str(path), "--to", "magicdec"]) == 0
    assert "left out for a gamma that changes: 5 of the cells" in capsys.readouterr().err


def calibration(model: str, fingerprint: dict[str, str | int]) -> Calibration:
    return Calibration(
        created="2026-11-29T10:00:00+00:00", fingerprint=fingerprint,
        model=find_model("smollm2-135m"),
        hardware=Hardware(
            Device("Some CPU", 8e9, 20e9, 200e9), constants=Constants(layer_s=0.0003, step_s=0.001)
        ),
        acceptances=(Accepted("snapkv", 24, "int8", 300, (0.9,)),),
    )  # fmt: skip


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> dict[str, GammaPolicy]:
    """By name those of the speculative passes that ran."""
    found: dict[str, GammaPolicy] = {}
    run = Bench.run

    def spying(self, config):  # type: ignore[no-untyped-def]
        if config.gamma:
            found[config.gamma_policy.name] = config.gamma_policy
        return run(self, config)

    monkeypatch.setattr(Bench, "run", spying)
    return found


@pytest.mark.parametrize("holds", [True, False])
def test_they_know_of_the_calibration_what_run_knows(
    record: Record, model: Path, document: Path, policies: dict[str, GammaPolicy], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], holds: bool,
) -> None:  # fmt: skip
    def nearest(name: str, fingerprint: dict[str, str | int]) -> Calibration:
        return calibration(name, {**fingerprint, **({} if holds else {"torch": "0.0"})})

    monkeypatch.setattr("magicdec.cli.run.prediction.load_calibration", nearest)
    path = tmp_path / "gammas.jsonl"
    assert record("-o", str(path), "--gamma", "auto,adaptive", grid=SMALL) == 0
    capsys.readouterr()
    for name, policy in policies.items():
        flags = ["--model", str(model), "--device", "cpu", "--batch", "2", "--context", "80"]
        flags += ["--budget", "24", "--max-new-tokens", "12", "--ignore-eos", "--gamma", name]
        assert run_command_line(["run", str(document), *flags, "--json", "-q"]) == 0
        said = json.loads(capsys.readouterr().out)["gamma"]
        assert (said["policy"], said["stop"]) == (name, policy.stop)
        assert (said["source"] or "") == policy.source
        assert ("calibration of 2026-11-29" in policy.source) == holds
    assert set(policies) == {"auto", "adaptive"}
    assert (policies["adaptive"] == Adaptive()) == (not holds)
    assert all(cell.predicted is None for cell in read_profile(path).cells)


def test_sequoia_has_the_shape_that_run_would_draft(
    record: Record, model: Path, document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes, decode = [], Session.run

    def spying(self, requests, config, **rest):  # type: ignore[no-untyped-def]
        if config.gamma:
            shapes.append(config.tree_shape)
        return decode(self, requests, config, **rest)

    monkeypatch.setattr(Session, "run", spying)
    monkeypatch.setattr("magicdec.cli.run.prediction.load_calibration", calibration)
    tree = ("--tree", "sequoia", "--gamma", "3", "--tree-nodes", "9")
    assert record("-o", str(tmp_path / "trees.jsonl"), *tree, grid=SMALL) == 0
    recorded = set(shapes)
    shapes.clear()
    flags = ["--model", str(model), "--device", "cpu", "--batch", "2", "--context", "80"]
    flags += ["--budget", "24", "--max-new-tokens", "12", "--ignore-eos", *tree]
    assert run_command_line(["run", str(document), *flags]) == 0
    assert recorded == set(shapes) and len(recorded) == 1
    assert recorded != {ShapeSearch(SIBLING_RATES, nodes=9, depth=3).shape(9, 3).parents}


def test_a_grid_has_numbers_before_policies(document: Path) -> None:
    schedule(Path("plan.toml"), 5)
    text = "auto, 4,1-2,auto,plan.toml"
    assert grid_values("gamma", text, "--gamma", words=True) == (4, 1, 2, "auto", "plan.toml")
    grids = read_grids({"gamma": text}, ("gamma",), ("gamma",))
    assert gammas(grids) == (
        *map(Ahead, (4, 1, 2)), Ahead(8, "auto"), Ahead(5, "plan.toml")
    )  # fmt: skip
    Path("magicdec.toml").write_text('gamma = "adaptive"')
    assert gammas(read_grids({"gamma": None}, ("gamma",), ("gamma",))) == (Ahead(8, "adaptive"),)
    with pytest.raises(ConfigError, match=r"--gamma: 'often' .* or give .* auto, adaptive or a"):
        grid_values("gamma", "often,auto", "--gamma", words=True)


def test_a_sweep_file_names_them_too(record: Record, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('output = "here.jsonl"\ncontext = 60\ngamma = [1, "adaptive"]\nbudget = 40\n')
    assert record("--sweep", str(sweep), "--max-new-tokens", "4", grid=()) == 0
    found = [(cell.key.gamma_policy, cell.key.gamma) for cell in
             read_profile(tmp_path / "here.jsonl").cells]  # fmt: skip
    assert found == [("fixed", 1), ("adaptive", 8)]


def test_what_cannot_be_recorded_is_one_line(
    record: Record, document: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    never, path = schedule(tmp_path / "never.toml", 0), tmp_path / "gammas.jsonl"
    for asked, said in (
        (("--gamma", "none.toml"), "there is no file 'none.toml'"),
        (("--gamma", f"2,{never}"), "never drafts"),
        (("--gamma", "auto,0"), "gamma 0 is plain decoding"),
        (("--gamma", "auto", "--tree", "specexec"), "γ auto with tree specexec"),
        (("--gamma", "adaptive", "--draft", "lookup"), "γ adaptive with lookup"),
    ):
        grid = SMALL if "lookup" not in asked else tuple(x for x in SMALL if x not in BUDGET)
        assert record("-o", str(path), *asked, grid=grid) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert not path.exists()


def test_a_changed_schedule_is_another_cell(record: Record, tmp_path: Path) -> None:
    path, plan = tmp_path / "gammas.jsonl", tmp_path / "plan.toml"
    for early, late in ((2, 2), (2, 1), (2, 2)):  # the last was measured first
        plan.write_text(schedule_text([Entry(1, 1, early), Entry(1, 50, late)]))
        gamma_schedule._read.cache_clear()  # each command is a process of its own
        assert record("-o", str(path), "--gamma", str(plan), grid=SMALL) == 0
    cells = read_profile(path).cells
    assert len({cell.key.gamma_policy for cell in cells}) == len(cells) == 2
    first, second = (cell.mean_gamma for cell in cells)
    assert first and second and first > 1.5 > 1 >= second, "all contexts here exceed 50"


def test_a_policy_that_fails_its_cell_leaves_the_others(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self, key, config, requests):  # type: ignore[no-untyped-def]
        if key.gamma_policy == "adaptive":
            raise ConfigError("no prices")
        return replace(config)

    monkeypatch.setattr("magicdec.profiles.recorded.record.Preparation.__call__", broken)
    path = tmp_path / "gammas.jsonl"
    assert record("-o", str(path), "--gamma", "1,adaptive", grid=SMALL) == 1
    cells = {cell.key.gamma_policy: cell for cell in read_profile(path).cells}
    assert cells["fixed"].status == "ok" and cells["adaptive"].error == "no prices"
