"""A survey beside the real runs that it stands for: what it says, and what it costs.

Greedy runs decode the very text that was surveyed. Of sampling every run decodes a text of its own,
with random numbers of its own, so each is held against a survey of its own text. Either way chance
is left in which tokens were accepted, and it takes some text to even out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

from magicdec.engine.config import DecodeConfig, SamplingConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.report import Recorder, RunReport
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.engine.text.documents import read_documents
from magicdec.engine.text.prompts import RowPlan
from magicdec.profiles.acceptance.rates import pooled
from magicdec.profiles.acceptance.survey import Survey
from tests.bench.measurement import Measurement

SELECTORS, BUDGETS, GAMMAS = ("snapkv", "h2o", "streaming"), (128, 512), (1, 3, 5)
BATCH, CONTEXT = 16, 2000
NEW_TOKENS = 64  # times γ: longer drafts vary more. With a quarter, chance alone reaches the goal
TEMPERATURE = 0.8
GOAL = 0.03  # of the length
COST_BUDGETS, COST_CONTEXTS = (128, 256, 512, 1024), (7000, 4000)
COST_BATCH, COST_NEW_TOKENS = 4, 64
RUN_GAMMA = 3
PREFILLS = 4 << 30  # bytes


class SurveyBench:
    """Every selector, budget and γ, greedily and sampled; and 12 drafters against three runs."""

    def __init__(self, open_model: Callable[..., Session], document: str) -> None:
        """open_model: the model, with `prefill_cache` bytes of stored prefills."""
        self._open = partial(open_model, prefill_cache=PREFILLS)
        self._documents = read_documents([document])
        self._session = self._open()

    def greedy(self) -> Iterator[Measurement]:
        """Yields each figure as it is known, as the other two do."""
        requests = self._requests(CONTEXT)
        config = DecodeConfig(max_new_tokens=NEW_TOKENS * max(GAMMAS), ignore_eos=True)
        survey = Survey(self._session, requests, config, _drafters(BUDGETS))
        survey.trace(lambda event: None)
        errors = []
        for found in list(survey.results()):
            for gamma in GAMMAS:
                real = _length(self._really(requests, config.drafted_by(found.drafter, gamma)))
                said = pooled(found.walks(gamma)).mean_length
                errors.append(said / real - 1)
                yield _compared(found.drafter, gamma, "greedy", said, real)
        yield _summary("greedy", errors)

    def sampled(self) -> Iterator[Measurement]:
        requests, how = self._requests(CONTEXT), f"T {TEMPERATURE}"
        errors = []
        for seed, (drafter, gamma) in enumerate(product(_drafters(BUDGETS), GAMMAS)):
            config = DecodeConfig(
                max_new_tokens=NEW_TOKENS * gamma, ignore_eos=True, gamma=gamma,
                sampling=SamplingConfig(temperature=TEMPERATURE, seed=seed),
            )  # fmt: skip
            survey = Survey(self._session, requests, config, [drafter])
            real = _length(survey.trace(lambda event: None, gamma=gamma))
            (found,) = survey.results()
            said = pooled(found.walks(gamma)).mean_length
            errors.append(said / real - 1)
            yield _compared(drafter, gamma, how, said, real)
        yield _summary(how, errors)

    def costs(self) -> Iterator[Measurement]:
        for context in COST_CONTEXTS:
            yield self._cost(context)

    def _cost(self, context: int) -> Measurement:
        """Each opens the model and takes its prompts from the store."""
        config = DecodeConfig(max_new_tokens=COST_NEW_TOKENS, ignore_eos=True)
        drafters = _drafters(COST_BUDGETS)
        self._really(self._requests(context, COST_BATCH, "staggered"), config)  # fills the store

        def seconds(work: Callable[[], object]) -> float:
            self._session = self._open()
            begun = time.perf_counter()
            work()
            return time.perf_counter() - begun

        def survey() -> None:
            asked = Survey(
                self._session, self._requests(context, COST_BATCH, "staggered"), config, drafters
            )
            asked.trace(lambda event: None)
            for _ in asked.results():
                pass

        def run(drafter: DraftSpec) -> None:
            requests = self._requests(context, COST_BATCH, "staggered")
            self._really(requests, config.drafted_by(drafter, RUN_GAMMA))

        chosen = drafters[:: len(COST_BUDGETS)]
        first = seconds(survey)
        runs = [seconds(partial(run, drafter)) for drafter in chosen]
        took = (first + seconds(survey)) / 2  # before and after: the machine drifts
        return Measurement(
            f"survey of {len(drafters)} drafters / {len(runs)} runs, {COST_BATCH} × {context:,}",
            took / sum(runs), goal=1, at_most=True, note=f"{took:.1f} and {sum(runs):.1f} s",
        )  # fmt: skip

    def _requests(
        self, context: int, batch: int = BATCH, rows: RowPlan = "windows"
    ) -> list[Request]:
        """Windows of the text err each in its own way; staggered rows err alike."""
        return self._session.requests(self._documents, context=context, batch=batch, rows=rows)

    def _really(self, requests: Sequence[Request], config: DecodeConfig) -> RunReport:
        recorder = Recorder()
        for event in self._session.run(requests, config, batch=len(requests)):
            recorder.add(event)
        return recorder.report()


def _drafters(budgets: Sequence[int]) -> list[DraftSpec]:
    return [
        DraftSpec(selector, budget=budget, draft_weights="auto")
        for selector in SELECTORS
        for budget in budgets
    ]


def _length(report: RunReport) -> float:
    assert report.mean_acceptance_length is not None, "it drafted"
    return report.mean_acceptance_length


def _compared(drafter: DraftSpec, gamma: int, how: str, said: float, real: float) -> Measurement:
    return Measurement(
        f"Ω survey / Ω run, {drafter.selector} {drafter.budget}, γ {gamma}, {how}", said / real,
        note=f"{said:.3f} and {real:.3f}",
    )  # fmt: skip


def _summary(how: str, errors: Sequence[float]) -> Measurement:
    worst = max(map(abs, errors))
    error = statistics.stdev(errors) / len(errors) ** 0.5
    return Measurement(
        f"|Ω survey / Ω run - 1|, worst of {len(errors)}, {how}", worst, unit="", goal=GOAL,
        at_most=True, note=f"mean {statistics.mean(errors):+.4f} ± {2 * error:.4f}",
    )  # fmt: skip
