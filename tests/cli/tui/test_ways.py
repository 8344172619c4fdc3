"""Trees, cascades and a γ that changes: run by the engine's process, told, shown, logged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from magicdec_scripted import (
    READY,
    SETTINGS,
    FakeClock,
    ScriptedLink,
    a_run,
    drive,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import Open, Report, Run
from magicdec.cli.tui.process.wire import decode, encode
from magicdec.cli.tui.process.worker import Worker
from magicdec.cli.tui.screens.export import export_to
from magicdec.cli.tui.session_log import SessionLog, recorded_run
from magicdec.cli.tui.state import Tuning
from magicdec.cli.tui.view import Viewer
from magicdec.profiles.recorded.reader import read_profile

TREE = dataclasses.replace(SETTINGS, tree="specexec", tree_nodes=8)
WAYS = {
    "specexec": {"tree": "specexec", "tree_nodes": 8},
    "sequoia": {"tree": "sequoia", "tree_nodes": 8},
    "cascade": {"draft": "lookup+self"},
    "auto": {"gamma": 4, "gamma_policy": "auto"},
    "adaptive": {"gamma": 4, "gamma_policy": "adaptive"},
}


@pytest.fixture(scope="module")
def session(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    """A run of every way after one of the usual one, by a worker over a tiny model; its reports
    have gone through the pipe's encoding."""
    folder = tmp_path_factory.mktemp("ways")
    document = folder / "doc.txt"
    document.write_text("one two three four five six seven eight " * 40)
    tuning = Tuning(FakeClock())

    def hear(report: Report) -> None:
        tuning.apply(decode(encode(report)))

    base = Settings(
        model=str(checkpoint), attention="sdpa", prefill_cache=False, context=120, batch=2,
        budget=48, max_new_tokens=16, draft_weights="same", ignore_eos=True,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGICDEC_CACHE_DIR", str(folder))
        worker = Worker(hear)
        worker.handle(Open((str(document),), base))
        for way in ({}, *WAYS.values()):
            settings = dataclasses.replace(base, **way)  # type: ignore[arg-type]
            run = tuning.begin(settings, None)
            worker.handle(Run(run.number, settings))
    return tuning


def test_every_way_runs_losslessly_and_knows_plain_decoding_from_the_first(session: Tuning) -> None:
    assert len(session.runs) == 1 + len(WAYS)
    for run in session.runs.values():
        assert run.status == "finished", run.error
        assert run.plain_run == 1 and run.lossless is not None and run.lossless.identical
        assert run.speculative is not None and run.measured(session.plain_of(run)) is not None
    plain = [run.number for run in session.runs.values() if "plain" in run.passes]
    assert plain == [1]


def test_the_view_and_the_log_name_the_way(session: Tuning) -> None:
    view = Viewer(session).take(None)
    infos = {name: run.info for name, run in zip(WAYS, view.runs[1:], strict=True)}
    assert {name: info.tree for name, info in infos.items() if info is not None and info.tree} == {
        "specexec": "specexec 8", "sequoia": "sequoia 8"
    }  # fmt: skip
    policies = {name: info.gamma_policy for name, info in infos.items() if info is not None}
    assert policies == {
        "specexec": "fixed", "sequoia": "fixed", "cascade": "fixed", "auto": "auto",
        "adaptive": "adaptive",
    }  # fmt: skip
    said = [line.text for line in session.log]
    assert any("accepted by the self-draft" in line for line in said)
    assert any(line.startswith("run 3: tree of ") for line in said)
    assert "run 5: γ auto: the run's own step times" in said
    assert any(line.startswith("run 6: γ adaptive, mean ") for line in said)


def test_the_log_and_an_export_have_every_way(session: Tuning, tmp_path: Path) -> None:
    log = SessionLog(tmp_path / "log.jsonl")
    for run in session.runs.values():
        assert log.keep(recorded_run(run, session)) is None
    log.close()
    cells = read_profile(log.path).cells
    assert [cell.key.way for cell in cells] == [
        "snapkv 48", "snapkv 48 specexec 8", "snapkv 48 sequoia 8", "lookup+self snapkv 48",
        "snapkv 48 auto", "snapkv 48 adaptive",
    ]  # fmt: skip
    for run, cell in zip(session.runs.values(), cells, strict=True):
        assert run.speculative is not None
        assert cell.mean_gamma == pytest.approx(run.speculative.tally.mean_gamma)
    assert export_to(str(tmp_path / "out.csv"), session, str).startswith("6 runs in ")


def test_the_app_shows_and_compares_them_and_learns_nothing_from_them(
    app: TuningApp, link: ScriptedLink
) -> None:
    """What a tree accepts is no acceptance of the chains that the cost model knows."""

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        await pilot.press("c")
        known = app.controller.forecaster.book.expect(SETTINGS, "int8")
        adaptive = dataclasses.replace(SETTINGS, gamma=8, gamma_policy="adaptive")
        for number, settings in enumerate((TREE, adaptive), start=2):
            app.controller.choose(settings)
            app.main.refresh_knobs()
            await settle(pilot)
            assert "measured only: the cost model does not price" in text_of(app)
            await pilot.press("r")
            link.tell(*a_run(number, settings, plain=False))
            await settle(pilot)
            assert f"run {number} finished" in text_of(app) and "vs run 1" in text_of(app)
        assert app.controller.forecaster.book.expect(SETTINGS, "int8") == known
        assert "γ adaptive ≤ 8" in text_of(app)
        await pilot.press("5")
        await settle(pilot)
        assert "snapkv specexec 8" in text_of(app) and " adaptive " in text_of(app)
        await pilot.press("up", "enter")
        await settle(pilot)
        assert "tree specexec 8" in text_of(app)

    drive(app, steps, (120, 40))


def test_budgets_are_explored_with_a_tree_and_the_curve_has_their_points(
    app: TuningApp, link: ScriptedLink
) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        app.controller.choose(TREE)
        app.main.refresh_knobs()
        await pilot.press("6")
        await settle(pilot)
        assert "the cost model does not price trees" in text_of(app).split("next run")[0]
        await pilot.press("escape", "o")
        app.screen.query_one("Input").value = "64,256"  # type: ignore[attr-defined]
        await pilot.press("enter")
        for number in (1, 2):
            await settle(pilot)
            settings = link.runs[-1].settings
            assert settings.tree == "specexec" and f"{number} of 2" in text_of(app)
            link.tell(*a_run(number, settings, plain=number == 1))
        await settle(pilot)
        shown = text_of(app)
        assert "of 2" not in shown and shown.count("●") == 1 + 2  # one of the legend
        assert "predicted  ●" not in shown and "does not price trees" in shown

    drive(app, steps)
