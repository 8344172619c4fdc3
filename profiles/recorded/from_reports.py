"""A cell from the reports and steps of the passes that measured it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.events import StepFinished
from magicdec.engine.report import RunReport
from magicdec.profiles.acceptance.rates import summed
from magicdec.profiles.costs.step_times import NOT_MEASURED, Seen, StepTimes
from magicdec.profiles.machine.steadiness import Steadiness
from magicdec.profiles.recorded.schema import (
    Cell,
    CellKey,
    Predicted,
    Prefill,
    Repeat,
    Sample,
    Verdict,
    median_of,
)


def cell_of(
    key: CellKey,
    passes: Sequence[tuple[RunReport | None, RunReport]],
    *,
    steadiness: Sequence[Steadiness] = (),
    step: Seen = NOT_MEASURED,
    lossless: Losslessness | None = None,
    predicted: Predicted | None = None,
    peak_memory_bytes: int | None = None,
    prefill: Prefill | None = None,
    draft_identity: str | None = None,
) -> Cell:
    """A finished cell; `passes` are the (plain, speculative) reports of its repeats, `steadiness`
    how the machine was in each."""
    spec = [report for _, report in passes]
    return Cell(
        key=key,
        draft_identity=draft_identity,
        repeats=tuple(
            Repeat(None if plain is None else sample_of(plain), sample_of(speculative), steady)
            for (plain, speculative), steady in zip_longest(passes, steadiness)
        ),
        drafted_per_position=summed(report.drafted_per_position for report in spec),
        accepted_per_step=summed(report.histogram for report in spec),
        step=step,
        peak_memory_bytes=peak_memory_bytes,
        predicted=predicted,
        prefill=prefill,
        lossless=verdict_of(lossless),
    )


def failed_cell(key: CellKey, error: str) -> Cell:
    return Cell(key=key, status="failed", error=error)


def prefill_of(report: RunReport) -> Prefill:
    return Prefill(report.phases.prefill, report.prompt_tokens, report.reused_prompt_tokens)


def sample_of(report: RunReport) -> Sample:
    """What a profile keeps of a pass; plain decoding has no draft counts."""
    spec = report.num_spec_steps > 0
    return Sample(
        report.decode_tokens,
        report.decode_seconds,
        report.steps,
        report.phases,
        report.num_spec_steps if spec else None,
        report.num_draft_tokens if spec else None,
        report.num_accepted_draft_tokens if spec else None,
        prefilled=report.reused_prompt_tokens < report.prompt_tokens,
        row_steps=sum(row.steps for row in report.rows),
        num_cut_draft_tokens=report.num_cut_draft_tokens if spec else None,
        num_spec_tokens=report.num_spec_tokens if spec else None,
    )


def verdict_of(lossless: Losslessness | None) -> Verdict:
    if lossless is None or not lossless.checked:
        return Verdict(False, reason="" if lossless is None else lossless.reason)
    return Verdict(True, lossless.identical, lossless.ok, lossless.reason)


def step_times(plain: Iterable[StepFinished], speculative: Iterable[StepFinished]) -> Seen:
    """Medians over the steps of any number of passes; None where there was no such step. Of
    selection the mean: what chooses once does so in a row's first step alone.

    Only steps that drafted the most count as speculative ones: near their end rows draft less.
    T_T is a whole plain step; T_V the verify phase alone, without commit and other.
    """
    steps = list(speculative)
    most = max((step.gamma for step in steps), default=0)
    full = [step.phases for step in steps if most and step.gamma == most]
    return StepTimes(
        median_of([step.phases.decode for step in plain]),
        median_of([phases.draft / most for phases in full]),
        median_of([phases.verify for phases in full]),
        statistics.mean(phases.select for phases in full) if full else None,
        rest=None,
    )
