"""Real runs of the best few and of plain decoding, on the same rows, in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import StepFinished
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.engine.verdict import Losslessness
from magicdec.profiles.storage.from_reports import cell_of, sample_of, step_times
from magicdec.profiles.storage.schema import Cell, Predicted, StepTimes
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Place
from magicdec.profiles.tuning.correcting import next_to_run
from magicdec.profiles.tuning.objective import Objective
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.verdict import Measured, unsteady

EXTRA = 2  # rounds


class Watch(Protocol):
    def __call__(self, what: str, share: float | None) -> None:
        """What is being done, and how much of it is done where that is known."""


def config_of(candidate: Candidate, base: DecodeConfig) -> DecodeConfig:
    """The run of a candidate; all else as in `base`."""
    drafter = candidate.drafter
    return replace(base, gamma=0) if drafter is None else drafter.config(base, candidate.gamma)


@dataclass(frozen=True, slots=True)
class Pass:
    report: RunReport
    steps: tuple[StepFinished, ...]


@dataclass(slots=True)
class Verification:
    """Runs of one place, kept as they are done; complete rounds count.

    pool: what may run there; `options` of it did, in the order in which they were chosen.
    """

    session: Session
    place: Place
    requests: Sequence[Request]
    config: DecodeConfig
    objective: Objective
    pool: Sequence[Option]
    options: list[Option] = field(default_factory=list)
    passes: dict[Candidate, list[Pass]] = field(default_factory=dict)
    checked: dict[Candidate, Losslessness] = field(default_factory=dict)

    def run(self, most: int, repeats: int, watch: Watch) -> Iterator[None]:
        """Yields after each run. The first round chooses up to `most` candidates, one after the
        other; every second one goes backwards, so that a machine which gets slower or faster does
        so to everybody. Where rounds differ much, up to EXTRA more are run: then one disturbed
        round does not move the medians. Raises what `Session.run` raises.
        """
        self._run(PLAIN, f"round 1 of {repeats}", watch)
        yield
        for _ in range(most):
            option = next_to_run(self.pool, self._seen(), self.objective)
            if option is None:
                break
            self._run(option.candidate, f"round 1 of {repeats}", watch)
            self._check(option.candidate, watch)
            self.options.append(option)
            yield
        for number in range(1, repeats + EXTRA):
            if number >= repeats and (repeats == 1 or not unsteady(self.measured())):
                break
            title = f"round {number + 1} of {repeats}"
            if number >= repeats:
                title = f"round {number + 1}, because the rounds before differ"
            for candidate in self._everybody()[:: -1 if number % 2 else 1]:
                self._run(candidate, title, watch)
                yield

    def _everybody(self) -> list[Candidate]:
        return [PLAIN, *(option.candidate for option in self.options)]

    def _seen(self) -> list[tuple[Option, StepTimes]]:
        """The first runs beside their predictions."""
        plain = self.passes[PLAIN][0].steps
        own = next(option for option in self.pool if option.candidate.plain)
        return [(own, step_times(plain, ()))] + [
            (option, step_times((), self.passes[option.candidate][0].steps))
            for option in self.options
        ]

    @property
    def rounds(self) -> int:
        """In which everybody ran."""
        return min(len(self.passes.get(candidate, ())) for candidate in self._everybody())

    def measured(self) -> list[Measured]:
        """Of the complete rounds: plain decoding, and all that gave its text; [] without any."""
        rounds = self.rounds
        if not rounds:
            return []
        plain = tuple(sample_of(done.report) for done in self.passes[PLAIN][:rounds])
        found = []
        for candidate in self._everybody():
            verdict = self.checked.get(candidate)
            if verdict is not None and not verdict.ok:
                continue
            reports = [done.report for done in self.passes[candidate][:rounds]]
            samples = tuple(sample_of(report) for report in reports)
            tpots = tuple(report.tpot_s or 0.0 for report in reports)
            found.append(Measured(self.place, candidate, samples, tpots, plain))
        return found

    def cells(self) -> list[Cell]:
        """For a profile."""
        rounds = self.rounds
        if not rounds:
            return []
        plain, found = self.passes[PLAIN][:rounds], []
        for option in self.options:
            mine = self.passes[option.candidate][:rounds]
            found.append(
                cell_of(
                    option.candidate.key(self.place),
                    [(b.report, a.report) for b, a in zip(plain, mine, strict=True)],
                    step=step_times(
                        [step for done in plain for step in done.steps],
                        [step for done in mine for step in done.steps],
                    ),
                    lossless=self.checked.get(option.candidate),
                    predicted=_predicted(option),
                )
            )
        return found

    def _run(self, candidate: Candidate, title: str, watch: Watch) -> None:
        recorder, steps, done = Recorder(), [], 0
        total = len(self.requests) * (self.config.max_new_tokens - 1)
        title = f"{title}: {candidate.label}"
        watch(title, 0.0)
        config = config_of(candidate, self.config)
        with closing(self.session.run(self.requests, config, batch=self.place.batch)) as events:
            for event in events:
                recorder.add(event)
                if isinstance(event, StepFinished):
                    steps.append(event)
                    done += sum(len(row.tokens) for row in event.rows)
                    watch(title, min(1.0, done / total))
        self.passes.setdefault(candidate, []).append(Pass(recorder.report(), tuple(steps)))

    def _check(self, candidate: Candidate, watch: Watch) -> None:
        watch("comparing the texts", None)
        plain, mine = (_outputs(self.passes[who][0].report) for who in (PLAIN, candidate))
        config = config_of(candidate, self.config)
        self.checked[candidate] = self.session.check(self.requests, config, plain, mine)


def _outputs(report: RunReport) -> list[tuple[int, ...]]:
    return [row.token_ids for row in report.rows]


def _predicted(option: Option) -> Predicted:
    price = option.price
    return Predicted(option.speedup, StepTimes(price.plain, price.draft, price.verify))
