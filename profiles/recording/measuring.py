"""Measures one cell: the same rows plainly and speculatively, a few times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event, StepFinished
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.recording.peak import PeakMemory
from magicdec.profiles.recording.prediction import predict_cell
from magicdec.profiles.storage.from_reports import sample_of
from magicdec.profiles.storage.schema import Cell, CellKey, Repeat, StepTimes, Verdict

Listener = Callable[[Event], None]
WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Pass:
    """One run over the rows, and its steps."""

    report: RunReport
    steps: tuple[StepFinished, ...]


class Bench:
    """The rows of one batch and context in a session; the first pass prefills, others reuse it.

    Every pass begins with the bare prompts: what an earlier one decoded is overwritten, and the
    draft's cache is made anew.
    """

    def __init__(
        self, session: Session, requests: Sequence[Request], batch: int, listen: Listener
    ) -> None:
        self._session, self._requests, self._batch = session, requests, batch
        self._listen = listen

    def run(self, config: DecodeConfig) -> Pass:
        """Raises what `Session.run` raises."""
        recorder, steps = Recorder(), []
        self._session.plan_memory(self._requests, config, self._batch)
        with closing(self._session.run(self._requests, config, batch=self._batch)) as events:
            for event in events:
                recorder.add(event)
                if isinstance(event, StepFinished):
                    steps.append(event)
                self._listen(event)
        return Pass(recorder.report(), tuple(steps))

    def warm_up(self, config: DecodeConfig) -> None:
        """Prefills, and brings kernels, weights and memory to where a measurement finds them."""
        self.run(replace(config, max_new_tokens=min(WARM_UP_TOKENS, config.max_new_tokens)))

    def check(self, config: DecodeConfig, plain: Pass, speculative: Pass) -> Verdict:
        found = self._session.check(
            self._requests, config,
            [row.token_ids for row in plain.report.rows],
            [row.token_ids for row in speculative.report.rows],
        )  # fmt: skip
        if not found.checked:
            return Verdict(False, reason=found.reason)
        return Verdict(True, found.identical, found.ok, found.reason)

    def measure(self, key: CellKey, config: DecodeConfig, plain: Sequence[Pass]) -> Cell:
        """One cell with as many repeats as there are plain passes."""
        predicted = predict_cell(key)
        self.warm_up(config)
        peak = PeakMemory(self._session.device)
        runs = [self.run(config) for _ in plain]
        memory = peak.bytes()
        steps = [step for each in runs for step in each.steps]
        verdicts = [self.check(config, a, b) for a, b in zip(plain, runs, strict=True)]
        return Cell(
            key=key,
            repeats=tuple(
                Repeat(sample_of(a.report), sample_of(b.report))
                for a, b in zip(plain, runs, strict=True)
            ),
            drafted_per_position=_summed(each.report.drafted_per_position for each in runs),
            accepted_per_step=_summed(each.report.histogram for each in runs),
            step=_step_times([step for each in plain for step in each.steps], steps, config.gamma),
            peak_memory_bytes=memory,
            predicted=predicted,
            lossless=next((v for v in verdicts if v.checked and not v.identical), verdicts[0]),
        )


def _summed(counts: Iterator[tuple[int, ...]] | Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    total: list[int] = []
    for each in counts:
        total += [0] * (len(each) - len(total))
        for place, count in enumerate(each):
            total[place] += count
    return tuple(total)


def _step_times(
    plain: Sequence[StepFinished], speculative: Sequence[StepFinished], gamma: int
) -> StepTimes:
    """Of full batches at full γ: those at the end of the rows are smaller."""
    whole = max((len(step.rows) for step in speculative), default=0)
    full = [s for s in speculative if s.gamma == gamma and len(s.rows) == whole]
    return StepTimes(
        plain=_median([s.phases.verify for s in plain if len(s.rows) == whole]),
        draft=_median([s.phases.draft / gamma for s in full]),
        verify=_median([s.phases.verify for s in full]),
        select=_median([s.phases.select for s in full]),
    )


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
