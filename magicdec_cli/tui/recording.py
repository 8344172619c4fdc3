"""Records a session for `tui --demo`: python -m magicdec.cli.tui.recording FILE [DOC]."""

from __future__ import annotations

import queue
import sys
import time
from dataclasses import replace
from pathlib import Path

from magicdec.cli.knobs import Settings
from magicdec.cli.tui.link import Link, ProcessLink
from magicdec.cli.tui.messages import Command, Failed, Gone, Open, Ready, Report, Run, RunEnded
from magicdec.cli.tui.replay import Moment, write_recording

FIRST = Settings(context=4000, batch=4, max_new_tokens=64)
RUNS = (
    FIRST,
    replace(FIRST, budget=64),
    replace(FIRST, gamma=5),
    replace(FIRST, selector="streaming"),
)


def record(link: Link, source: str, runs: tuple[Settings, ...] = RUNS) -> list[Moment]:
    """Opens the document and runs each of the settings. Raises RuntimeError when one fails."""
    began = time.monotonic()
    moments: list[Moment] = []
    ends: queue.SimpleQueue[Report] = queue.SimpleQueue()

    def hear(report: Report) -> None:
        moments.append(Moment(time.monotonic() - began, report))
        if isinstance(report, Ready | Failed | Gone | RunEnded):
            ends.put(report)

    link.start(hear)
    commands: list[Command] = [Open((source,), runs[0])]
    commands += [Run(number, settings) for number, settings in enumerate(runs, start=1)]
    for command in commands:
        link.send(command)
        end = ends.get()
        if getattr(end, "error", None) is not None:
            raise RuntimeError(str(end))
    link.close()
    return moments


if __name__ == "__main__":
    path, document = Path(sys.argv[1]), (sys.argv[2:] or ["builtin:pydoc"])[0]
    write_recording(path, record(ProcessLink(), document))
