"""Surveys, prices, ranks, verifies; what is known so far is in `answers` at any moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean

from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event, PrefillProgress, StepFinished
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.survey.surveying import Survey, Surveyed, as_run
from magicdec.profiles.tuning.acceptance import evidence, named
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Place
from magicdec.profiles.tuning.machine import CalibratedPrices
from magicdec.profiles.tuning.pricing import Memory, plain_option, price
from magicdec.profiles.tuning.question import Answer, Question
from magicdec.profiles.tuning.verifying import Verification, Watch, config_of

LEAST_ROWS, MOST_ROWS = 4, 16  # surveyed; fewer say little, more take long

#: Rows of a context: how many are wanted, and the requests.
MakeRows = Callable[[int | None, int], Sequence[Request]]


@dataclass(slots=True)
class Tuner:
    """make_rows: the documents as rows. `answers`: by context, in the question's order."""

    session: Session
    calibration: Calibration
    question: Question
    make_rows: MakeRows
    watch: Watch
    answers: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Longer contexts first: their prefill serves the shorter ones.

        Raises what `Session.run` raises, and KeyboardInterrupt at any moment.
        """
        asked = self.question
        order = sorted(asked.contexts, key=lambda c: -1 if c is None else c, reverse=True)
        for context in order:
            self._survey(context)
        self.answers.sort(key=lambda answer: answer.context)
        if asked.verify:
            for answer in reversed(self.answers):
                self._verify(answer)

    def _survey(self, context: int | None) -> None:
        asked = self.question
        wanted = min(max(*asked.batches, LEAST_ROWS), MOST_ROWS)
        requests = self._fitting(self.make_rows(context, wanted))
        longest = max(len(request.tokens) for request in requests)
        answer = Answer(context or longest, len(requests))
        self.answers.append(answer)
        survey = Survey(self.session, requests, asked.config, asked.drafters)
        title = f"context {answer.context:,}: the text of {len(requests)} rows"
        survey.trace(_Listener(self.watch, title, len(requests), asked.config).event)
        prices = CalibratedPrices(
            self.calibration,
            {answer.context: mean(len(request.tokens) for request in requests)},
            asked.config.max_new_tokens / 2,
        )
        found = survey.results()
        for done, drafter in enumerate(asked.drafters):
            self.watch(
                f"context {answer.context:,}: what {drafter.selector} {drafter.budget} drafts",
                done / len(asked.drafters),
            )
            self._price(answer, next(found), prices)

    def _fitting(self, requests: Sequence[Request]) -> Sequence[Request]:
        """As many of the rows as a survey has memory for: it holds all of them at once."""
        config, longest = as_run(self.question.config, self.question.drafters), 0
        for count in range(len(requests), 1, -1):
            longest = max(len(request.tokens) for request in requests[:count])
            forecast = self.session.forecast(config, batch=count, context=longest)
            if forecast.total <= forecast.available:
                return requests[:count]
        self.session.plan_memory(requests[:1], config, 1)  # says what would fit
        return requests[:1]

    def _price(self, answer: Answer, found: Surveyed, prices: CalibratedPrices) -> None:
        asked = self.question
        drafter = named(found, asked.config.sampling.temperature)
        if prices.unknown(drafter):
            self._note(f"what {drafter.selector} selects with was not calibrated: priced at 0")
        by_gamma = {gamma: evidence(found, gamma) for gamma in asked.gammas}
        for batch in asked.batches:
            place = Place(batch, answer.context)
            if not answer.at(place):
                some, memory = next(iter(by_gamma.values())), self._memory(PLAIN, place)
                answer.options.append(plain_option(place, some, prices, memory))
            for gamma, known in by_gamma.items():
                candidate = Candidate(drafter, gamma)
                memory = self._memory(candidate, place)
                answer.options.append(price(candidate, place, known, prices, memory))

    def _memory(self, candidate: Candidate, place: Place) -> Memory:
        forecast = self.session.forecast(
            config_of(candidate, self.question.config), batch=place.batch, context=place.context
        )
        limit = self.question.max_memory
        usable = forecast.available if limit is None else min(limit, forecast.available)
        return Memory(forecast.total, usable)

    def _verify(self, answer: Answer) -> None:
        """In the winner's batch, or where the limit is out of reach in that which comes closest."""
        asked = self.question
        ranking = answer.ranking(asked.objective)
        if ranking is None:
            return
        place = (ranking.winner or ranking.nearest).place
        context = answer.context if answer.context in asked.contexts else None
        requests = self.make_rows(context, max(place.batch, min(LEAST_ROWS, answer.rows)))
        answer.verification = Verification(
            self.session, place, requests, asked.config, asked.objective, answer.at(place)
        )  # fmt: skip
        for _ in answer.verification.run(asked.verify, asked.repeats, self.watch):
            pass

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@dataclass(slots=True)
class _Listener:
    """Tells how far the run is that gives the text."""

    watch: Watch
    title: str
    rows: int
    config: DecodeConfig
    done: int = 0

    def event(self, event: Event) -> None:
        match event:
            case PrefillProgress():
                self.watch(f"{self.title}, prefill", event.done / event.total)
            case StepFinished():
                self.done += sum(len(row.tokens) for row in event.rows)
                total = self.rows * max(1, self.config.max_new_tokens - 1)
                self.watch(self.title, min(1.0, self.done / total))
