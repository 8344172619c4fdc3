"""Runs as profiles and tables, the screen as a picture."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest
from magicdec_scripted import (
    ENVIRONMENT,
    READY,
    SETTINGS,
    FakeClock,
    ScriptedLink,
    a_run,
    drive,
    screen_text,
    settle,
    text_of,
)
from textual.pilot import Pilot

from magicdec.cli.tui.app import TuningApp
from magicdec.cli.tui.process.messages import Happened, Report, RunBegan
from magicdec.cli.tui.screens.export import export_to
from magicdec.cli.tui.session_log import SessionLog, recorded_run
from magicdec.cli.tui.state import Tuning
from magicdec.engine.errors import ConfigError
from magicdec.engine.events import RowStarted
from magicdec.profiles.recorded.reader import read_profile

Size = tuple[int, int]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".svg"])
def test_export_writes_runs_and_pictures(
    app: TuningApp, link: ScriptedLink, tmp_path: Path, ending: str
) -> None:
    target = tmp_path / f"out{ending}"

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await pilot.press("r")
        link.tell(*a_run(1))
        await settle(pilot)
        await pilot.press("e")
        app.screen.query_one("Input").value = str(target)  # type: ignore[attr-defined]
        app.screen.query_one("Input").focus()
        await pilot.press("enter")
        await settle(pilot)
        assert target.exists()

    drive(app, steps)
    if ending == ".svg":
        assert target.read_text().startswith("<svg") and "acceptance" in target.read_text()
    elif ending == ".csv":
        (row,) = csv.DictReader(target.open())
        assert (row["gamma"], row["budget"], row["lossless"]) == ("3", "256", "identical")
    else:
        profile = read_profile(target)
        assert profile.header.model == ENVIRONMENT["model"] and len(profile.cells) == 1


def test_an_export_overwrites_nothing_and_needs_a_run(
    app: TuningApp, link: ScriptedLink, tmp_path: Path
) -> None:
    there = tmp_path / "there.svg"
    there.write_text("mine")

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        await settle(pilot)
        await pilot.press("e")
        path = app.screen.query_one("Input")
        path.value = str(there)  # type: ignore[attr-defined]
        path.focus()
        await pilot.press("enter")
        await settle(pilot)
        assert "exists" in text_of(app)
        path.value = str(tmp_path / "new.csv")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settle(pilot)
        assert "no run yet" in text_of(app)

    drive(app, steps)
    assert there.read_text() == "mine" and not (tmp_path / "new.csv").exists()


def _tuning(*runs: list[Report]) -> Tuning:
    tuning = Tuning(FakeClock())
    tuning.apply(READY)
    for run in runs:
        assert isinstance(run[0], RunBegan)
        tuning.begin(run[0].settings, None)
        for report in run:
            tuning.apply(report)
    return tuning


def _of(document: str, run: list[Report], digest: str | None = None) -> list[Report]:
    """The same run over another document."""
    found: list[Report] = []
    for report in run:
        if isinstance(report, Happened) and isinstance(report.event, RowStarted):
            event = dataclasses.replace(report.event, document=f"{document}[:1000]")
            report = dataclasses.replace(report, event=event)
        if isinstance(report, RunBegan) and digest is not None:
            environment = {**report.environment, "documents": {document: digest}}
            report = dataclasses.replace(report, environment=environment)
        found.append(report)
    return found


def _cells(path: Path) -> list[tuple[str, int, int]]:
    profile = read_profile(path)
    assert not profile.warnings
    return [(cell.status, len(cell.repeats), cell.num_spec_steps) for cell in profile.cells]


def test_runs_of_several_documents_are_not_written_under_one_name(tmp_path: Path) -> None:
    tuning = _tuning(a_run(1), _of("=cmd.txt", a_run(2)), a_run(3))
    said = export_to(str(tmp_path / "out.jsonl"), tuning, str)
    first, second = tmp_path / "out-1-doc.txt.jsonl", tmp_path / "out-2-cmd.txt.jsonl"
    assert said == f"3 runs in {first}, {second}"
    names = [[s.name for s in read_profile(path).header.documents] for path in (first, second)]
    assert names == [["doc.txt"], ["=cmd.txt"]]
    ((_, both, steps),), ((_, one, single),) = _cells(first), _cells(second)
    assert (both, one) == (2, 1), "runs 1 and 3 are samples of one cell"
    assert steps == 2 * single

    table = tmp_path / "out.csv"
    export_to(str(table), tuning, str)
    rows = list(csv.DictReader(table.open()))
    assert [(row["documents"], row["repeats"]) for row in rows] == [
        ("doc.txt", "2"), ("'=cmd.txt", "1"),
    ]  # fmt: skip


def test_two_documents_of_one_name_are_told_apart_by_their_texts(tmp_path: Path) -> None:
    """In the log, too, which goes on in the file of each."""
    log = SessionLog(tmp_path / "log.jsonl")
    tuning = _tuning(*(_of("a.txt", a_run(n), digest * 64) for n, digest in enumerate("aba", 1)))
    for run in tuning.runs.values():
        assert log.keep(recorded_run(run, tuning)) is None
    log.close()
    said = export_to(str(tmp_path / "out.jsonl"), tuning, str)
    assert said.endswith("out-1-a.txt.jsonl, " + str(tmp_path / "out-2-a.txt.jsonl"))
    for name, digest, repeats in (("log", "a", 2), ("log-2", "b", 1), ("out-2-a.txt", "b", 1)):
        path = tmp_path / f"{name}.jsonl"
        (source,) = read_profile(path).header.documents
        assert (source.name, source.sha256) == ("a.txt", digest * 64)
        assert [repeat for _, repeat, _ in _cells(path)] == [repeats]


def test_a_stopped_repeat_does_not_replace_what_is_measured(tmp_path: Path) -> None:
    from magicdec.cli.tui.process.messages import RunEnded

    *reports, end = a_run(2)
    assert isinstance(end, RunEnded)
    stopped = [*reports, dataclasses.replace(end, status="stopped", lossless=None)]
    tuning, log = _tuning(a_run(1), stopped), SessionLog(tmp_path / "log.jsonl")
    for run in tuning.runs.values():
        assert log.keep(recorded_run(run, tuning)) is None
    log.close()
    export_to(str(tmp_path / "out.jsonl"), tuning, str)
    for name in ("log", "out"):
        assert [cell[:2] for cell in _cells(tmp_path / f"{name}.jsonl")] == [("ok", 1)]


def test_runs_of_other_lengths_are_no_samples_of_one_cell(tmp_path: Path) -> None:
    """A run of few tokens pays for its selection with fewer: its speedup is another figure."""
    longer = dataclasses.replace(SETTINGS, max_new_tokens=40)
    tuning, log = _tuning(a_run(1), a_run(2, longer), a_run(3)), SessionLog(tmp_path / "log.jsonl")
    for run in tuning.runs.values():
        assert log.keep(recorded_run(run, tuning)) is None
    log.close()
    export_to(str(tmp_path / "out.jsonl"), tuning, str)
    for names in (("log", "log-2"), ("out-1-doc.txt", "out-2-doc.txt")):
        for name, tokens, repeats in zip(names, (25, 40), (2, 1), strict=True):
            path = tmp_path / f"{name}.jsonl"
            assert read_profile(path).header.max_new_tokens == tokens
            assert [repeat for _, repeat, _ in _cells(path)] == [repeats]
    export_to(str(tmp_path / "out.csv"), tuning, str)
    rows = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert [(row["max_new_tokens"], row["repeats"]) for row in rows] == [("25", "2"), ("40", "1")]


def test_a_draft_model_that_was_changed_under_its_name_is_another_one(tmp_path: Path) -> None:
    """The first one's runs go on in their own file, in the log, too."""
    drafted = dataclasses.replace(SETTINGS, draft="/models/small", selector="streaming")
    runs = []
    for number, identity in enumerate("aba", 1):
        reports = a_run(number, drafted)
        assert isinstance(reports[0], RunBegan)
        environment = {**reports[0].environment, "draft_identity": identity * 32}
        runs.append([dataclasses.replace(reports[0], environment=environment), *reports[1:]])
    tuning, log = _tuning(*runs), SessionLog(tmp_path / "log.jsonl")
    for run in tuning.runs.values():
        assert log.keep(recorded_run(run, tuning)) is None
    log.close()
    export_to(str(tmp_path / "out.jsonl"), tuning, str)
    for names in (("log", "log-2"), ("out-1-doc.txt", "out-2-doc.txt")):
        for name, identity, repeats in zip(names, "ab", (2, 1), strict=True):
            (cell,) = read_profile(tmp_path / f"{name}.jsonl").cells
            assert (cell.draft_identity, len(cell.repeats)) == (identity * 32, repeats)


def test_documents_of_one_name_from_two_folders_stay_two(tmp_path: Path) -> None:
    reports = a_run(1)
    assert isinstance(reports[0], RunBegan)
    digests = {"a/x.txt": "a" * 64, "b/x.txt": "b" * 64}
    environment = {**reports[0].environment, "documents": digests}
    found: list[Report] = [dataclasses.replace(reports[0], environment=environment)]
    for report in reports[1:]:
        if isinstance(report, Happened) and isinstance(report.event, RowStarted):
            name = list(digests)[report.event.row]
            event = dataclasses.replace(report.event, document=f"{name}[:1000]")
            report = dataclasses.replace(report, event=event)
        found.append(report)
    export_to(str(tmp_path / "out.jsonl"), _tuning(found), str)
    documents = read_profile(tmp_path / "out.jsonl").header.documents
    assert [(s.name, s.sha256) for s in documents] == [("x.txt", "a" * 64), ("x.txt", "b" * 64)]


def test_an_export_of_several_files_overwrites_none(tmp_path: Path) -> None:
    tuning = _tuning(a_run(1), _of("b.txt", a_run(2)))
    there = tmp_path / "out-2-b.txt.jsonl"
    there.write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        export_to(str(tmp_path / "out.jsonl"), tuning, str)
    assert there.read_text() == "mine" and not list(tmp_path.glob("out-1*"))


def test_a_disturbed_run_is_marked_in_the_table_the_details_the_log_and_the_export(
    app: TuningApp, link: ScriptedLink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magicdec.cli.tui.process.messages import RunEnded
    from magicdec.profiles.machine.steadiness import Steadiness

    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 0.1)
    busy, quiet = (Steadiness(1, (), 1.1, 1.05, others) for others in (0.48, 0.02))
    target = tmp_path / "out.jsonl"

    async def steps(pilot: Pilot[None]) -> None:
        link.tell(READY)
        for number, steady in ((1, busy), (2, quiet)):
            await pilot.press("r")
            *reports, end = a_run(number)
            assert isinstance(end, RunEnded)
            link.tell(*reports, dataclasses.replace(end, steadiness=steady))
            await settle(pilot)
            for said in ("disturbed: steps scatter 1.10", "programs 48% of the CPUs"):
                assert (said in text_of(app)) is (number == 1), said
        first, second = (
            next(line for line in screen_text(app) if f"{mark} 2 " in line) for mark in (" 1", "▸2")
        )
        assert first.count("?") == 2 and "?" not in second
        log = [line.text for line in app.controller.tuning.log if line.kind == "warning"]
        assert [line for line in log if line.startswith("run 1: a disturbed measurement: other")]
        assert not [line for line in log if line.startswith("run 2: a disturbed")]
        assert "plain anew" not in log[-1]
        await pilot.press("r")
        *reports, end = a_run(3, plain=False)
        assert isinstance(end, RunEnded)
        link.tell(*reports, dataclasses.replace(end, steadiness=busy))
        await settle(pilot)
        last = app.controller.tuning.log[-1].text
        assert last.endswith("plain decoding is run 1's, `Run, plain anew` measures both")
        await pilot.press("e")
        app.screen.query_one("Input").value = str(target)  # type: ignore[attr-defined]
        app.screen.query_one("Input").focus()
        await pilot.press("enter")
        await settle(pilot)

    drive(app, steps, (160, 50))
    (cell,) = read_profile(target).cells
    assert [repeat.steadiness for repeat in cell.repeats] == [busy, quiet, busy]
    assert cell.disturbed and "48% of the CPUs" in read_profile(target).warnings[0]
