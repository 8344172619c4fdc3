"""Keeps every run of a tuning on disk as it ends, in the form of a recorded profile."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path

import platformdirs

from magicdec.cli.tui.process.messages import TuneEnded
from magicdec.cli.tui.runs import RunState
from magicdec.cli.tui.state import Tuning
from magicdec.engine.errors import ConfigError
from magicdec.profiles.costs.step_times import Seen, StepTimes
from magicdec.profiles.recorded.decode import cell_from_json, header_from_json
from magicdec.profiles.recorded.from_reports import step_times
from magicdec.profiles.recorded.header import Header, Source
from magicdec.profiles.recorded.pooling import Shelf, by_subject
from magicdec.profiles.recorded.reader import profile_of_run
from magicdec.profiles.recorded.run_record import run_record
from magicdec.profiles.recorded.schema import Predicted, Profile
from magicdec.profiles.recorded.writer import ProfileWriter

PART = re.compile(r"\[\d*:\d*\]$")  # of a document, as a row's name has it


def log_path() -> Path:
    """A new file for this tuning in the user's state folder."""
    folder = Path(platformdirs.user_state_dir("magicdec")) / "tui"
    return folder / time.strftime("%Y-%m-%d-%H%M%S.jsonl")


class SessionLog:
    """A file is created when the first run ends, another one for what may not stand in it, see
    `Shelf`.

    A setting that is run again is written again with the samples of all its runs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._shelf = Shelf()
        self._writers: dict[int, ProfileWriter] = {}  # by their places on the shelf
        self._last = 0

    @property
    def path(self) -> Path:
        """The file that was written last."""
        return self._numbered(self._last + 1)

    def _numbered(self, number: int) -> Path:
        return self._path.with_stem(self._path.stem + (f"-{number}" if number > 1 else ""))

    def keep(self, profile: Profile | None) -> str | None:
        """Appends the cells; returns why that did not work."""
        if profile is None:
            return None
        try:
            for cell in profile.cells:
                self._last, before, now = self._shelf.put(profile.header, cell)
                writer = self._writer_of(profile.header)
                if now != before:
                    writer.append(now)
        except OSError as error:
            return f"the log {self.path} cannot be written: {error.strerror or error}"
        except ConfigError as error:
            return f"the log {self.path} ends here: {error}"
        return None

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer_of(self, header: Header) -> ProfileWriter:
        if self._last not in self._writers:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writers[self._last] = ProfileWriter(self.path, header)
        return self._writers[self._last]


def recorded_run(run: RunState, tuning: Tuning) -> Profile | None:
    """A run as a profile of one cell; None when it has drafted nothing."""
    speculative = run.speculative
    if speculative is None or not speculative.tally.num_draft_tokens:
        return None
    plain = tuning.plain_of(run)
    record = run_record(
        speculative.report(), env=run.environment, config=dataclasses.asdict(run.settings),
        interrupted=run.status == "stopped", error=run.error,
        baseline=plain.report() if plain is not None else None, lossless=run.lossless,
        steadiness=run.steadiness,
    )  # fmt: skip
    profile = profile_of_run(record, f"run {run.number}")
    header = dataclasses.replace(
        profile.header, created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        documents=_without_lengths(profile.header),
    )  # fmt: skip
    cell = dataclasses.replace(profile.cells[0], step=_step(run, tuning), predicted=_predicted(run))
    return Profile(header, (cell,))


def tuned_profile(report: TuneEnded) -> Profile | None:
    """The real runs of a tuning; None without any."""
    if not report.profile:
        return None
    first, *cells = map(json.loads, report.profile)
    header = header_from_json(first, "tune")
    header = dataclasses.replace(header, documents=_without_lengths(header))
    return Profile(header, tuple(cell_from_json(cell, "tune") for cell in cells))


def session_profiles(tuning: Tuning) -> list[Profile]:
    """All runs that drafted, those of tunings last: a profile for each model, set of documents and
    number of new tokens, runs of one setting as samples of one cell."""
    recorded = [recorded_run(run, tuning) for run in tuning.runs.values() if run.over]
    recorded += [tuned_profile(report) for report in tuning.tuned]
    return by_subject(profile for profile in recorded if profile is not None)


def _without_lengths(header: Header) -> tuple[Source, ...]:
    """Rows take parts of a document that differ from run to run: only the document stays. Two of
    one name, from two folders, are two."""
    found = {(PART.sub("", source.name), source.sha256): None for source in header.documents}
    return tuple(Source(name, None, digest) for name, digest in found)


def _step(run: RunState, tuning: Tuning) -> Seen:
    plain, speculative = tuning.plain_of(run), run.speculative
    assert speculative is not None
    return step_times(plain.steps if plain is not None else (), speculative.steps)


def _predicted(run: RunState) -> Predicted | None:
    forecast = run.predicted
    if forecast is None:
        return None
    known = forecast.times
    step = StepTimes(known.plain, known.draft, known.verify, None, None)
    return Predicted(forecast.speedup, step)
