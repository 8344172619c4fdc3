"""Decoding at one batch and context: plain, speculative and transformers, in one run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import StepFinished
from magicdec.engine.loading.opening import open_checkpoint
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.session import Session, open_session
from magicdec.engine.text.documents import read_documents
from magicdec.profiles.bench.theirs import TransformersDecoding

BATCH, CONTEXT, NEW_TOKENS = 4, 4000, 48
SELECTORS, BUDGETS, GAMMAS = ("streaming", "snapkv"), (128, 256, 512), (1, 2, 3, 4, 5)
ROUNDS = 3
THEIR_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the benchmark. Ratios compare figures of this run only."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    note: str = ""
    at_most: bool = False  # the goal is an upper bound


class DecodingBench:
    """4 windows of a document, 4,000 tokens each, decoded in every way that is compared."""

    def __init__(self, model: str, document: str) -> None:
        self._model_name = model
        self._session: Session = open_session(model)
        self._requests = self._session.requests(
            read_documents([document]), context=CONTEXT, batch=BATCH, rows="windows"
        )
        self._config = DecodeConfig(max_new_tokens=NEW_TOKENS, ignore_eos=True, gamma=max(GAMMAS))

    def run(self) -> Iterator[Measurement]:
        """Yields each figure as it is known."""
        prefilled = self._decode(replace(self._config, max_new_tokens=1))
        rate = BATCH * CONTEXT / prefilled.phases.prefill
        yield Measurement("prefill", rate, "tokens/s")
        yield from self._against_transformers()
        plain = self._decode(replace(self._config, gamma=0))
        yield from self._acceptance()
        yield from self._speedup(plain)

    def _decode(self, config: DecodeConfig) -> RunReport:
        recorder = Recorder()
        for event in self._session.run(self._requests, config, batch=BATCH):
            recorder.add(event)
        return recorder.report()

    def _against_transformers(self) -> Iterator[Measurement]:
        theirs = TransformersDecoding(open_checkpoint(self._model_name))
        ours_s, theirs_s = [], []
        plain = replace(self._config, gamma=0, max_new_tokens=THEIR_TOKENS + 1)
        for _ in range(ROUNDS):  # in turn, so that both see the same machine
            ours_s.append(self._step_seconds(plain))
            theirs_s.append(theirs.decode(self._session.cache, THEIR_TOKENS)[0])
        ours, other = statistics.median(ours_s), statistics.median(theirs_s)
        yield Measurement("plain decode step, magicdec", 1000 * ours, "ms")
        yield Measurement("plain decode step, transformers generate", 1000 * other, "ms")
        yield Measurement("transformers / magicdec", other / ours, "×", goal=1.6)

    def _step_seconds(self, config: DecodeConfig) -> float:
        steps = [
            event.phases.wall
            for event in self._session.run(self._requests, config, batch=BATCH)
            if isinstance(event, StepFinished)
        ]
        return statistics.median(steps)

    def _acceptance(self) -> Iterator[Measurement]:
        for selector in SELECTORS:
            for budget in BUDGETS:
                report = self._decode(
                    replace(self._config, gamma=3, selector=selector, budget=budget)
                )
                yield Measurement(
                    f"acceptance rate, {selector} {budget}, γ 3",
                    _known(report.acceptance_rate),
                    "",
                    note=f"length {_known(report.mean_acceptance_length):.2f}",
                )

    def _speedup(self, plain: RunReport) -> Iterator[Measurement]:
        best: tuple[float, int] = (0.0, 0)
        for gamma in GAMMAS:
            report = self._decode(replace(self._config, gamma=gamma, budget=256))
            steps = report.decode_seconds - report.phases.select
            speedup = plain.decode_seconds / steps
            best = max(best, (speedup, gamma))
            same = [r.token_ids for r in report.rows] == [r.token_ids for r in plain.rows]
            yield Measurement(
                f"speculative / plain tokens/s, snapkv 256, γ {gamma}",
                speedup,
                "×",
                note=f"length {_known(report.mean_acceptance_length):.2f}, "
                f"selection {report.phases.select:.2f} s apart, "
                + ("same text" if same else "TEXT DIFFERS"),
            )
        yield Measurement(
            "speculative / plain tokens/s at the best γ", best[0], "×", note=f"γ {best[1]}"
        )


def _known(value: float | None) -> float:
    assert value is not None
    return value
