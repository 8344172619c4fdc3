"""The recorder of the demo: runs, then a tuning, and little of what only says how far it is."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import pytest
from magicdec_scripted import READY, SETTINGS, ScriptedLink, a_run

from magicdec.cli.tui.process.messages import Command, Loading, Open, Run, Tune, TuneEnded, TuneStep
from magicdec.cli.tui.process.recording import APART, record
from magicdec.cli.tui.process.replay import read_recording, write_recording

OTHER = dataclasses.replace(SETTINGS, budget=64)


class Answering(ScriptedLink):
    """An engine that does at once what it is told."""

    ending = TuneEnded(-1, "finished", answer=OTHER, headline="Use 64")

    def send(self, command: Command) -> None:
        super().send(command)
        if isinstance(command, Open):
            self.tell(*(Loading("weights", share / 100) for share in range(101)), READY)
        elif isinstance(command, Run):
            self.tell(*a_run(command.run, command.settings, plain=command.run == 1))
        elif isinstance(command, Tune):
            steps = [TuneStep(-1, what, n / 50) for what in ("survey", "proof") for n in range(51)]
            self.tell(*steps, self.ending)


def test_a_recording_has_runs_and_a_tuning_without_every_report_of_progress(
    tmp_path: Path,
) -> None:
    link = Answering()
    moments = record(link, "doc.txt", (SETTINGS, OTHER), ("streaming",))
    assert link.closed and link.commands == [
        Open(("doc.txt",), SETTINGS), Run(1, SETTINGS), Run(2, OTHER),
        Tune(-1, SETTINGS, ("streaming",)),
    ]  # fmt: skip
    path = tmp_path / "session.jsonl"
    write_recording(path, moments)
    reports = [moment.report for moment in read_recording(path)]
    assert reports[-1] == link.ending
    progress = [r for r in reports if isinstance(r, Loading | TuneStep)]
    for what in ("survey", "proof"):
        shares = [r.share or 0.0 for r in progress if r.what == what]
        assert shares[0] == 0 and len(shares) == 5
        assert all(later - before >= APART for before, later in pairwise(shares))
    rest = [r for r in reports if not isinstance(r, Loading | TuneStep)]
    wanted = [READY, *a_run(1), *a_run(2, OTHER, plain=False), link.ending]
    assert list(map(type, rest)) == list(map(type, wanted)) and rest[0] == READY


def test_a_tuning_that_fails_is_no_recording() -> None:
    link = Answering()
    link.ending = TuneEnded(-1, "failed", "needs 40 GiB, 16 are free")
    with pytest.raises(RuntimeError, match="40 GiB"):
        record(link, "doc.txt", (SETTINGS,), ("snapkv",))
