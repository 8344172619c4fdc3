"""Measures one cell: the same rows plainly and speculatively in turn, a few times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event, StepFinished
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.engine.verdict import Losslessness
from magicdec.profiles.recording.peak import PeakMemory
from magicdec.profiles.storage.from_reports import cell_of, step_times
from magicdec.profiles.storage.schema import Cell, CellKey, Predicted, StepTimes

Listener = Callable[[Event], None]
#: (cell, its rows, new tokens of each) to what is expected of it; None when that is unknown.
Predict = Callable[[CellKey, Sequence[Request], int], Predicted | None]
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
        self, session: Session, requests: Sequence[Request], batch: int, listen: Listener,
        predict: Predict,
    ) -> None:  # fmt: skip
        self._session, self._requests, self._batch = session, requests, batch
        self._listen, self._predict = listen, predict

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

    def check(self, config: DecodeConfig, plain: Pass, speculative: Pass) -> Losslessness:
        return self._session.check(
            self._requests, config,
            [row.token_ids for row in plain.report.rows],
            [row.token_ids for row in speculative.report.rows],
        )  # fmt: skip

    def measure(self, key: CellKey, config: DecodeConfig, repeats: int) -> Cell:
        """One cell. Plain and speculative passes take turns, so that a machine that slows down
        slows both.
        """
        predicted = self._predict(key, self._requests, config.max_new_tokens)
        bare = replace(config, gamma=0)
        self.warm_up(bare)
        self.warm_up(config)
        peak = PeakMemory(self._session.device)
        pairs = [(self.run(bare), self.run(config)) for _ in range(repeats)]
        memory = peak.bytes()
        verdicts = [self.check(config, plain, after) for plain, after in pairs]
        return cell_of(
            key,
            [(plain.report, after.report) for plain, after in pairs],
            step=_full_steps(pairs),
            lossless=next((v for v in verdicts if v.checked and not v.identical), verdicts[0]),
            predicted=predicted,
            peak_memory_bytes=memory,
        )


def _full_steps(pairs: Sequence[tuple[Pass, Pass]]) -> StepTimes:
    """Of full batches: those at the end of the rows are smaller."""
    plain = [step for each, _ in pairs for step in each.steps]
    speculative = [step for _, each in pairs for step in each.steps]
    whole = max((len(step.rows) for step in speculative), default=0)
    return step_times(
        (step for step in plain if len(step.rows) == whole),
        (step for step in speculative if len(step.rows) == whole),
    )
