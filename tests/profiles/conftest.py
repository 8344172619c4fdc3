"""Profiles made from stated step times and acceptance, so that what they say is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from magicdec.engine.events import PhaseTimes
from magicdec.profiles.costs.step_times import StepTimes
from magicdec.profiles.recorded.encode import cell_to_json, header_to_json
from magicdec.profiles.recorded.header import Grid, Header, Source
from magicdec.profiles.recorded.schema import Cell, CellKey, Predicted, Repeat, Sample, Verdict

STEPS = 100  # row-steps of a repeat


@dataclass
class Maker:
    """Makes cells; `plain` and `draft` are T_T and T_D in seconds."""

    plain: float = 0.1
    draft: float = 0.02
    rates: Sequence[float] = (0.9, 0.8, 0.7, 0.6)  # unconditional, by position
    header: Header = field(
        default_factory=lambda: Header(
            created="2026-11-30T04:00:00Z",
            tool="0.1.0",
            environment={"device": "cpu", "device_name": "Test CPU", "threads": 2, "torch": "2.13"},
            model="tiny-llama",
            dtype="float32",
            kv_dtype="float32",
            documents=(Source("book.txt", 5000, "ab" * 32),),
            max_new_tokens=32,
            grid=Grid(batch=(1, 4), context=(1000,), selector=("snapkv",), gamma=(1, 2, 3)),
        )
    )

    def cell(
        self,
        batch: int = 1,
        context: int = 1000,
        gamma: int = 3,
        *,
        budget: int = 256,
        selector: str = "snapkv",
        verify: float = 0.12,
        plain: float | None = None,
        noise: Sequence[float] = (1.0, 1.0, 1.0),
        **more: Any,
    ) -> Cell:
        """Speculative seconds of repeat r are multiplied by noise[r]."""
        before = self.plain if plain is None else plain
        reached = [STEPS, *(round(STEPS * rate) for rate in self.rates[:gamma])]
        histogram = [a - b for a, b in zip(reached, [*reached[1:], 0], strict=True)]
        accepted = sum(a * n for a, n in enumerate(histogram))
        tokens = STEPS + accepted
        steps = STEPS // batch
        repeats = [
            Repeat(
                Sample(tokens, before * tokens / batch, tokens // batch,
                       PhaseTimes(prefill=1.0, verify=before * tokens / batch)),
                Sample(tokens, (gamma * self.draft + verify) * factor * STEPS / batch, steps,
                       PhaseTimes(prefill=0.1, draft=gamma * self.draft * factor * STEPS / batch,
                                  verify=verify * factor * STEPS / batch),
                       STEPS, gamma * STEPS, accepted),
            )
            for factor in noise
        ]  # fmt: skip
        count = len(repeats)
        return Cell(
            key=CellKey(batch=batch, context=context, selector=selector, budget=budget,
                        gamma=gamma, temperature=0.0, draft_weights="int8"),
            repeats=tuple(repeats),
            drafted_per_position=(STEPS * count,) * gamma,
            accepted_per_step=tuple(n * count for n in histogram),
            step=StepTimes(before, self.draft, verify, 0.001, None),
            peak_memory_bytes=1_700_000_000,
            predicted=Predicted(1.5, StepTimes(before, self.draft, verify, None, None)),
            lossless=Verdict(True, True, True),
            **more,
        )  # fmt: skip

    def lines(self, *cells: Cell) -> list[str]:
        return [json.dumps(header_to_json(self.header)), *map(_cell_line, cells)]

    def write(self, path: Path, *cells: Cell) -> Path:
        path.write_text("\n".join(self.lines(*cells)) + "\n")
        return path


def _cell_line(cell: Cell) -> str:
    return json.dumps(cell_to_json(cell))


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture
def magicdec(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in this process: (exit code, stdout, stderr)."""
    from magicdec.cli.main import run_command_line

    def run(*arguments: object) -> tuple[int, str, str]:
        code = run_command_line([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
