"""One decoding of rows through a session, with its steps: what every measurement consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event, RowStarted, StepFinished
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.costs.step_times import Seen
from magicdec.profiles.machine.other_programs import OthersLoad
from magicdec.profiles.machine.steadiness import Steadiness, beside
from magicdec.profiles.recorded.from_reports import step_times

Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Pass:
    """One run over the rows, and its steps. others: what other programs took of the CPUs while
    rows were decoded."""

    report: RunReport
    steps: tuple[StepFinished, ...]
    others: float | None = None

    @property
    def outputs(self) -> list[tuple[int, ...]]:
        """Token ids of each row."""
        return [row.token_ids for row in self.report.rows]


@dataclass(frozen=True, slots=True)
class Passes:
    """The rows of one batch and context in a session; the first pass prefills, others reuse it.

    Every pass begins with the bare prompts: what an earlier one decoded is overwritten, and the
    draft's cache is made anew.
    """

    session: Session
    requests: Sequence[Request]
    batch: int

    def run(self, config: DecodeConfig, listen: Listener) -> Pass:
        """Raises what `Session.run` raises."""
        recorder, steps = Recorder(), []
        others: OthersLoad | None = None
        self.session.plan_memory(self.requests, config, self.batch)
        with closing(self.session.run(self.requests, config, batch=self.batch)) as events:
            for event in events:
                if others is None and isinstance(event, RowStarted):
                    others = OthersLoad()
                recorder.add(event)
                if isinstance(event, StepFinished):
                    steps.append(event)
                listen(event)
        share = None if others is None else others.share
        return Pass(recorder.report(), tuple(steps), share)

    def check(self, config: DecodeConfig, plain: Pass, speculative: Pass) -> Losslessness:
        """Whether both gave the same texts; not checked for sampled ones."""
        return self.session.check(self.requests, config, plain.outputs, speculative.outputs)


def steadiness(plain: Pass, speculative: Pass) -> Steadiness:
    """Of the machine, while these two were measured."""
    return beside(plain.steps, speculative.steps, plain.others, speculative.others)


def full_steps(plain: Iterable[Pass], speculative: Iterable[Pass]) -> Seen:
    """Of full batches: those at the end of the rows are smaller."""
    before, after = ([step for done in passes for step in done.steps]
                     for passes in (plain, speculative))  # fmt: skip
    whole = max((len(step.rows) for step in (*before, *after)), default=0)
    return step_times(
        (step for step in before if len(step.rows) == whole),
        (step for step in after if len(step.rows) == whole),
    )
