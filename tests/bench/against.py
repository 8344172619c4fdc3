"""The default settings beside transformers' `generate`: 4 rows of 4,000 tokens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import StepFinished
from magicdec.engine.loading.checkpoint import Checkpoint
from magicdec.profiles.calibration.steps import Rows
from tests.bench.measurement import Measurement
from tests.bench.theirs import TransformersDecoding

BATCH, CONTEXT = 4, 4000
SELECTORS, BUDGETS, GAMMAS, NEW_TOKENS = ("streaming", "snapkv"), (128, 256, 512), (1, 2, 3, 4), 48
ROUNDS, THEIR_TOKENS = 3, 8


class AgainstTransformers:
    """Prefill, plain steps and speculative tokens/s, each measured in turn with transformers'."""

    def __init__(self, rows: Rows, checkpoint: Checkpoint) -> None:
        self._rows = rows
        self._theirs = TransformersDecoding(checkpoint)
        self._config = DecodeConfig(max_new_tokens=NEW_TOKENS)

    def run(self) -> Iterator[Measurement]:
        """Yields each figure as it is known."""
        yield self._prefill()
        theirs: list[float] = []
        yield from self._plain(theirs)
        yield from self._acceptance()
        yield self._speculative(statistics.median(theirs))

    def _prefill(self) -> Measurement:
        one = self._rows.requests(1, CONTEXT)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            self._rows.forget()
            report = self._rows.decode(one, replace(self._config, max_new_tokens=1, gamma=0))
            assert report.reused_prompt_tokens == 0, "something was prefilled before"
            ours.append(report.phases.prefill)
            theirs.append(self._theirs.prefill(torch.tensor([one[0].tokens])))
        mine, other = statistics.median(ours), statistics.median(theirs)
        return Measurement(
            "prefill tokens/s / transformers'", other / mine, goal=1.3,
            note=f"{CONTEXT / mine:.0f} and {CONTEXT / other:.0f} tokens/s",
        )  # fmt: skip

    def _plain(self, theirs: list[float]) -> Iterator[Measurement]:
        same = self._rows.requests(BATCH, CONTEXT, stagger=0)  # generate pads unequal rows
        config = replace(self._config, gamma=0, max_new_tokens=THEIR_TOKENS + 1)
        ours = []
        for _ in range(ROUNDS):
            ours += [
                e.phases.decode
                for e in self._rows.events(same, config)
                if isinstance(e, StepFinished)
            ]
            theirs.append(self._theirs.decode(self._rows.engine.cache, BATCH, THEIR_TOKENS))
        step, other = statistics.median(ours), statistics.median(theirs)
        yield Measurement(
            "plain step, transformers' generate / magicdec", other / step, goal=1.6,
            note=f"{1e3 * other:.0f} and {1e3 * step:.0f} ms, {BATCH} × {CONTEXT:,}",
        )  # fmt: skip

    def _acceptance(self) -> Iterator[Measurement]:
        requests = self._rows.requests(BATCH, CONTEXT)
        for selector in SELECTORS:
            for budget in BUDGETS:
                report = self._rows.decode(
                    requests, replace(self._config, gamma=3, selector=selector, budget=budget)
                )
                assert report.acceptance_rate is not None
                yield Measurement(
                    f"acceptance rate, {selector} {budget}, γ 3", report.acceptance_rate, "",
                    note=f"length {report.mean_acceptance_length:.2f}",
                )  # fmt: skip

    def _speculative(self, their_step: float) -> Measurement:
        requests = self._rows.requests(BATCH, CONTEXT)
        rates = {}
        for gamma in GAMMAS:
            began = time.perf_counter()
            report = self._rows.decode(requests, replace(self._config, gamma=gamma))
            phases = report.phases
            once = phases.load + phases.prefill + phases.select
            seconds = time.perf_counter() - began - once
            rates[gamma] = report.decode_tokens / seconds
        best = max(rates, key=lambda g: rates[g])
        return Measurement(
            "speculative tokens/s / transformers' generate", rates[best] * their_step / BATCH,
            goal=5, note=f"γ {best}: {rates[best]:.1f} and {BATCH / their_step:.1f} tokens/s",
        )  # fmt: skip
