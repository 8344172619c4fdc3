"""Cells made from real passes: what a recorder hands to the writer."""

from __future__ import annotations

from typing import Any

import pytest

from magicdec.engine.events import PhaseTimes, StepFinished
from magicdec.engine.report import Recorder
from magicdec.profiles.recorded.from_reports import cell_of, failed_cell, step_times
from magicdec.profiles.recorded.reader import read_profile
from magicdec.profiles.recorded.schema import CellKey
from magicdec.profiles.recorded.writer import ProfileWriter


def report(outcome: Any) -> Any:
    recorder = Recorder()
    for event in outcome.events:
        recorder.add(event)
    return recorder.report()


def test_two_repeats_of_real_passes_survive_the_file(tiny, decode, prompt, make, tmp_path):
    prompts = [prompt(80, seed) for seed in range(3)]
    settings = dict(max_new_tokens=20, budget=24, selector="streaming", ignore_eos=True)
    passes = [
        (
            report(decode(tiny().ours, prompts, gamma=0, **settings)),
            report(decode(tiny().ours, prompts, gamma=3, **settings)),
        )
        for _ in range(2)
    ]
    key = CellKey(batch=3, context=80, selector="streaming", budget=24, gamma=3, temperature=0.0,
                  draft_weights="same")  # fmt: skip
    cell = cell_of(key, passes)
    assert cell.num_spec_steps == sum(spec.num_spec_steps for _, spec in passes)
    assert cell.num_draft_tokens == sum(spec.num_draft_tokens for _, spec in passes)
    assert cell.acceptance_rate == pytest.approx(passes[0][1].acceptance_rate)
    assert cell.acceptance_rate_per_position == pytest.approx(
        passes[0][1].acceptance_rate_per_position
    )
    assert cell.mean_gamma == pytest.approx(passes[0][1].mean_gamma)
    other = CellKey(batch=9, context=80, selector="streaming", budget=24, gamma=3,
                    temperature=0.0, draft_weights="same")  # fmt: skip
    with ProfileWriter(tmp_path / "p.jsonl", make.header) as writer:
        writer.append(cell)
        writer.append(failed_cell(other, "out of memory"))
    profile = read_profile(tmp_path / "p.jsonl")
    assert profile.cells[0] == cell
    assert profile.cells[1].error == "out of memory" and profile.cells[1].num_spec_steps == 0


def test_step_times_are_medians_of_full_steps():
    def step(gamma: int, draft: float, verify: float, select: float = 0.0) -> StepFinished:
        phases = PhaseTimes(draft=draft, verify=verify, select=select, other=0.5)
        return StepFinished(0, gamma, (), phases)

    spec = [step(4, 4.0, 10.0, 0.6), step(4, 8.0, 12.0), step(4, 6.0, 30.0), step(1, 90.0, 90.0)]
    found = step_times([step(0, 0.0, 7.0), step(0, 0.0, 9.0)], spec)
    assert (found.plain, found.draft, found.verify) == (8.5, 1.5, 12.0)
    assert found.select == pytest.approx(0.2), "the mean: most steps select nothing"
    none = step_times([], [])
    assert (none.plain, none.draft, none.verify, none.select) == (None,) * 4
