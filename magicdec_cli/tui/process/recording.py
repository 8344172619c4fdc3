"""Records a session for `tui --demo`: python -m magicdec.cli.tui.process.recording FILE [DOC]."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.process.link import Link, ProcessLink
from magicdec.cli.tui.process.messages import (
    Command,
    Failed,
    Gone,
    Loading,
    Open,
    Ready,
    Report,
    Run,
    RunEnded,
    Tune,
    TuneEnded,
    TuneStep,
)
from magicdec.cli.tui.process.replay import Moment, write_recording

FIRST = Settings(context=4000, batch=4, max_new_tokens=64)
RUNS = (
    FIRST,
    replace(FIRST, budget=64),
    replace(FIRST, gamma=5),
    replace(FIRST, selector="streaming"),
)
SELECTORS = ("snapkv", "streaming")  # of the tuning
APART = 0.2  # of the work that a report of progress announces, between two that are kept


def record(
    link: Link, source: str, runs: Sequence[Settings] = RUNS, selectors: Sequence[str] = SELECTORS
) -> list[Moment]:
    """Opens the document, runs each of the settings and tunes the first. Raises RuntimeError when
    one of these fails."""
    began = time.monotonic()
    moments: list[Moment] = []
    ends: queue.SimpleQueue[Report] = queue.SimpleQueue()

    def hear(report: Report) -> None:
        moments.append(Moment(time.monotonic() - began, report))
        if isinstance(report, Ready | Failed | Gone | RunEnded | TuneEnded):
            ends.put(report)

    link.start(hear)
    commands: list[Command] = [Open((source,), runs[0])]
    commands += [Run(number, settings) for number, settings in enumerate(runs, start=1)]
    commands += [Tune(-1, runs[0], tuple(selectors))]
    for command in commands:
        link.send(command)
        end = ends.get()
        if getattr(end, "error", None) is not None:
            raise RuntimeError(str(end))
    link.close()
    return thinned(moments)


def thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Of the reports that only say how far something is, those that say something new."""
    kept: list[Moment] = []
    said: tuple[str, float] | None = None
    for moment in moments:
        report = moment.report
        if isinstance(report, Loading | TuneStep):
            share = report.share or 0.0
            if said is not None and said[0] == report.what and 0 <= share - said[1] < APART:
                continue
            said = report.what, share
        kept.append(moment)
    return kept


if __name__ == "__main__":
    path, document = Path(sys.argv[1]), (sys.argv[2:] or ["builtin:pydoc"])[0]
    write_recording(path, record(ProcessLink(), document))
