"""Plain and speculative decoding over a grid of batches and contexts, against their floors.

Floor of a pass: the larger of its bytes (weights and KV) over the measured reading rate and its
arithmetic over the measured GEMM rate, linears and attention each on their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import StepFinished
from magicdec.engine.request import Request
from magicdec.profiles.calibration.measure import Machine
from magicdec.profiles.calibration.steps import Rows
from tests.bench.measurement import Measurement, below, over_floor

BATCHES, CONTEXTS = (1, 4, 8), (1000, 4000, 7000)
GAMMAS, BUDGET, NEW_TOKENS = (1, 2, 3, 4, 5), 256, 32
GOALS = {  # (batch, context): plain / floor, draft / plain, speedup
    (4, 4000): (1.3, 0.3, 1.4),
    (4, 7000): (1.3, None, None),
    (8, 4000): (1.3, None, None),
    (8, 7000): (1.3, 0.2, 1.5),
}


@dataclass(frozen=True, slots=True)
class Steps:
    """Median seconds of a run's full steps, and what they gave."""

    draft: float  # of one draft step
    verify: float
    whole: float
    gained: float  # tokens of all rows per step
    accepted: float  # mean acceptance length


class DecodingBench:
    """For every batch and context: T_T, T_D, T_V(γ) and the speedup, SnapKV at budget 256."""

    def __init__(self, rows: Rows, machine: Machine) -> None:
        self._rows, self._machine = rows, machine

    def run(self) -> Iterator[Measurement]:
        """Yields each figure as it is known."""
        for context in sorted(CONTEXTS, reverse=True):
            for batch in BATCHES:
                yield from self._cell(batch, context)

    def _cell(self, batch: int, context: int) -> Iterator[Measurement]:
        requests = self._rows.requests(batch, context)
        self._machine.forget()
        self._machine.sample()
        plain = [self._steps(requests, 0)]
        drafting = {}
        for gamma in GAMMAS:
            self._machine.sample()
            drafting[gamma] = self._steps(requests, gamma)
        plain.append(self._steps(requests, 0))  # before and after: the machine drifts
        step = statistics.mean(p.whole for p in plain)
        case = f"{batch} × {context:,}"
        slow, cheap, fast = GOALS.get((batch, context), (None, None, None))
        floor = self._floor(requests, 1)
        yield over_floor(
            f"plain step / floor, {case}", step, floor, goal=slow,
            note=f"{1e3 * step:.0f} ms, floor {1e3 * floor:.0f} ms at "
            f"{self._machine.read_rate / 1e9:.1f} GB/s",
        )  # fmt: skip
        for gamma, steps in drafting.items():
            least = self._floor(requests, gamma + 1)
            error = below(steps.verify, least)
            yield Measurement(
                f"T_V({gamma}) / T_T, {case}", None if error else steps.verify / step,
                note=f"roofline {least / floor:.2f}", error=error,
            )  # fmt: skip
        draft = statistics.median(s.draft for s in drafting.values())
        yield Measurement(
            f"T_D / T_T, {case}", draft / step, goal=cheap, at_most=True,
            note=f"{1e3 * draft:.0f} ms at budget {BUDGET}",
        )  # fmt: skip
        rate = batch / step
        speedups = {g: s.gained / s.whole / rate for g, s in drafting.items()}
        best = max(speedups, key=lambda g: speedups[g])
        yield Measurement(
            f"speculative / plain tokens/s, {case}", speedups[best], goal=fast,
            note=f"γ {best}, length {drafting[best].accepted:.2f}; by γ "
            + " ".join(f"{value:.2f}" for value in speedups.values()),
        )  # fmt: skip

    def _steps(self, requests: list[Request], gamma: int) -> Steps:
        """Selection, once per row after its prefill, is in none of the steps."""
        config = DecodeConfig(max_new_tokens=NEW_TOKENS, gamma=gamma, budget=BUDGET)
        steps = [
            e for e in self._rows.events(requests, config)
            if isinstance(e, StepFinished) and e.gamma == gamma and len(e.rows) == len(requests)
        ]  # fmt: skip
        accepted = statistics.mean(row.accepted for step in steps for row in step.rows)
        return Steps(
            draft=statistics.median(s.phases.draft for s in steps) / max(1, gamma),
            verify=statistics.median(s.phases.verify for s in steps),
            whole=statistics.median(s.phases.decode for s in steps),
            gained=len(requests) * (1 + accepted),
            accepted=1 + accepted,
        )

    def _floor(self, requests: list[Request], width: int) -> float:
        model, spec = self._rows.model, self._rows.model.spec
        keys = sum(len(r.tokens) + NEW_TOKENS // 2 for r in requests)
        weights = model.streamed_bytes
        linear = self._machine.floor(weights, 2 * len(requests) * width * weights // 4)
        attention = self._machine.floor(
            keys * spec.kv_bytes_per_token(self._rows.dtype.itemsize),
            4 * spec.layers * spec.heads * spec.head_dim * keys * width,
        )
        return linear + attention
