"""Real runs of the best few and of plain decoding, on the same rows, in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.events import StepFinished
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.engine.verdict import Losslessness
from magicdec.profiles.storage.from_reports import cell_of, sample_of, step_times
from magicdec.profiles.storage.schema import Cell, Predicted, StepTimes
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Place
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.verdict import Measured


class Watch(Protocol):
    def __call__(self, what: str, share: float | None) -> None:
        """What is being done, and how much of it is done where that is known."""


def config_of(candidate: Candidate, base: DecodeConfig) -> DecodeConfig:
    """The run of a candidate; all else as in `base`."""
    drafter = candidate.drafter
    if drafter is None:
        return replace(base, gamma=0)
    weights: DraftWeights = "int8" if drafter.draft_weights == "int8" else "same"
    return replace(
        base, selector=drafter.selector, selector_options=dict(drafter.selector_options),
        budget=drafter.budget, gamma=candidate.gamma, draft_weights=weights,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pass:
    report: RunReport
    steps: tuple[StepFinished, ...]


@dataclass(slots=True)
class Verification:
    """Runs of one place, kept as they are done; complete rounds count."""

    session: Session
    place: Place
    requests: Sequence[Request]
    config: DecodeConfig
    options: Sequence[Option]
    passes: dict[Candidate, list[Pass]] = field(default_factory=dict)
    checked: dict[Candidate, Losslessness] = field(default_factory=dict)

    def run(self, repeats: int, watch: Watch) -> Iterator[None]:
        """Yields after each run. Every second round goes backwards, so that a machine which gets
        slower or faster does so to everybody. Raises what `Session.run` raises."""
        candidates = [PLAIN, *(option.candidate for option in self.options)]
        for number in range(repeats):
            for candidate in candidates[:: -1 if number % 2 else 1]:
                title = f"round {number + 1} of {repeats}: {candidate.label}"
                self.passes.setdefault(candidate, []).append(self._pass(candidate, title, watch))
                yield
            if number == 0:
                self._check(candidates[1:], watch)

    @property
    def rounds(self) -> int:
        """In which everybody ran."""
        everybody = [PLAIN, *(option.candidate for option in self.options)]
        return min(len(self.passes.get(candidate, ())) for candidate in everybody)

    def measured(self) -> list[Measured]:
        """Of the complete rounds: plain decoding, and all that gave its text; [] without any."""
        rounds = self.rounds
        if not rounds:
            return []
        plain = tuple(sample_of(done.report) for done in self.passes[PLAIN][:rounds])
        found = []
        for candidate in self.passes:
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

    def _pass(self, candidate: Candidate, title: str, watch: Watch) -> Pass:
        recorder, steps, done = Recorder(), [], 0
        total = len(self.requests) * (self.config.max_new_tokens - 1)
        watch(title, 0.0)
        config = config_of(candidate, self.config)
        with closing(self.session.run(self.requests, config, batch=self.place.batch)) as events:
            for event in events:
                recorder.add(event)
                if isinstance(event, StepFinished):
                    steps.append(event)
                    done += sum(len(row.tokens) for row in event.rows)
                    watch(title, min(1.0, done / total) if total else None)
        return Pass(recorder.report(), tuple(steps))

    def _check(self, candidates: Sequence[Candidate], watch: Watch) -> None:
        watch("comparing the texts", None)
        plain = _outputs(self.passes[PLAIN][0].report)
        for candidate in candidates:
            outputs = _outputs(self.passes[candidate][0].report)
            config = config_of(candidate, self.config)
            self.checked[candidate] = self.session.check(self.requests, config, plain, outputs)


def _outputs(report: RunReport) -> list[tuple[int, ...]]:
    return [row.token_ids for row in report.rows]


def _predicted(option: Option) -> Predicted:
    price = option.price
    return Predicted(option.speedup, StepTimes(price.plain, price.draft, price.verify))
