"""Surveys, prices, ranks, verifies; what is known so far is in `answers` at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean

import torch

from magicdec.engine.config import DecodeConfig, DraftWeights
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.drafters.base import draft_weights
from magicdec.engine.events import Event, PrefillProgress, StepFinished
from magicdec.engine.request import Request
from magicdec.engine.selection import measured_as
from magicdec.engine.session import Session
from magicdec.profiles.acceptance.intervals import length_interval
from magicdec.profiles.acceptance.rates import pooled
from magicdec.profiles.acceptance.survey import Survey, Surveyed, as_run
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.calibration.fit import shape_of
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.recorded.passes import Passes
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Evidence, Place
from magicdec.profiles.tuning.correcting import drift, factors
from magicdec.profiles.tuning.preparing import RunSettings, config_of
from magicdec.profiles.tuning.pricing import (
    CalibratedPrices,
    Known,
    Memory,
    Option,
    best_around,
    leading,
    places_around,
    plain_option,
    price,
)
from magicdec.profiles.tuning.question import Answer, Question
from magicdec.profiles.tuning.verifying import Allowance, Verification, Watch


def weighted(
    drafters: Sequence[DraftSpec], kinds: Sequence[DraftWeights], config: DecodeConfig,
    device: torch.device, dtype: torch.dtype,
) -> list[DraftSpec]:  # fmt: skip
    """Every drafter with every kind of weights; none named: all that `auto` would choose among.

    Raises ConfigError for int8 where it cannot be had.
    """
    found = []
    for drafter in drafters:
        base = config.drafted_by(drafter, 1)
        asked = [replace(base, draft_weights=kind) for kind in kinds or ("auto", "same")]
        wanted = [draft_weights(each, device, dtype) for each in asked]
        found += [replace(drafter, draft_weights=kind) for kind in dict.fromkeys(wanted)]
    return found


def evidence(surveyed: Surveyed, gamma: int) -> Evidence:
    walks = surveyed.walks(gamma)
    every = pooled(walks)
    tokens = tuple(len(row) for row in surveyed.kept)
    # Each token of a row is an accepted draft or the one that its step adds.
    steps = tuple(
        count - float(sum(walk.accepted)) for count, walk in zip(tokens, walks, strict=True)
    )
    if surveyed.texts:
        emitted, taken = sum(tokens), sum(steps)
        length, share = (emitted / taken, every.steps / taken) if taken else (1.0, 0.0)
        return Evidence(gamma, tokens, steps, length, None, every.shares, share)
    interval = length_interval(walks)
    return Evidence(gamma, tokens, steps, every.mean_length, interval, every.shares)


LEAST_ROWS, MOST_ROWS = 4, 16  # surveyed; fewer say little, more take long
MOST_PLACES = 3  # of one context where real runs are made

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
            allowance = Allowance(asked.time_limit)
            for left, answer in zip(
                range(len(self.answers), 0, -1), self.answers[::-1], strict=True
            ):
                self._verify(answer, allowance.share(left))

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
            self._models(),
        )
        found, known = survey.results(), list[tuple[Candidate, Evidence]]()
        for done, drafter in enumerate(asked.drafters):
            self.watch(
                f"context {answer.context:,}: what {drafter.way} drafts",
                done / len(asked.drafters),
            )
            known += self._price(answer, next(found), prices)
        if len(asked.contexts) * len(asked.batches) == 1:
            self.watch("the map around it", None)
            best = leading(answer.options, asked.objective)
            known = [(who, evidence) for who, evidence in known if who in best]
            place = Place(asked.batches[0], answer.context)
            answer.around = list(self._around(place, known, prices))

    def _models(self) -> dict[str, ModelShape]:
        """Sizes of the models that draft for another."""
        asked = self.question
        configs = {d.draft: asked.config.drafted_by(d, 1) for d in asked.drafters}
        specs = {name: self.session.drafts.spec(config) for name, config in configs.items()}
        return {name: shape_of(spec, name) for name, spec in specs.items() if spec is not None}

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

    def _around(self, place: Place, known: Known, prices: CalibratedPrices) -> Iterator[Option]:
        for each in places_around(place, self.session.spec.trained_window):
            best = best_around(known, each, self.question.objective, prices)
            if best is not None:
                yield replace(best, memory=self._memory(best.candidate, each))

    def _price(self, answer: Answer, found: Surveyed, prices: CalibratedPrices) -> Known:
        asked = self.question
        drafter = measured_as(found.drafter, asked.config.sampling.temperature, found.weights)
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
        return [(Candidate(drafter, gamma), known) for gamma, known in by_gamma.items()]

    def _memory(self, candidate: Candidate, place: Place) -> Memory:
        forecast = self.session.forecast(
            config_of(candidate, self.question.config), batch=place.batch, context=place.context
        )
        limit = self.question.max_memory
        usable = forecast.available if limit is None else min(limit, forecast.available)
        return Memory(forecast.total, usable)

    def _verify(self, answer: Answer, allowance: Allowance) -> None:
        """In the best batch by prediction; then where the runs say that another one is better."""
        asked = self.question
        for _ in range(MOST_PLACES):
            place = answer.next_place(asked.objective)
            if place is None:
                return
            context = answer.context if answer.context in asked.contexts else None
            requests = self.make_rows(context, max(place.batch, min(LEAST_ROWS, answer.rows)))
            found = Verification(
                Passes(self.session, requests, place.batch), place, asked.objective,
                answer.at(place),
                RunSettings(asked.config, self.calibration, requests, place.batch),
                partial(self._memory, place=place), asked.changes,
            )  # fmt: skip
            answer.verifications.append(found)
            try:
                for _ in found.run(asked.verify, asked.repeats, allowance, self.watch):
                    pass
            finally:  # an interrupted verification has something to tell, too
                self._tell(found)

    def _tell(self, found: Verification) -> None:
        """What a reader of the ranking has to know of the runs."""
        for trial in found.tried:
            verdict = found.checked.get(trial.candidate)
            if verdict is not None and not verdict.ok:
                self._note(
                    f"{trial.candidate.label} gave another text than plain decoding at "
                    f"{found.place.label}: left out"
                )
        for what in found.not_tried:
            self._note(f"not tried at {found.place.label}: {what}")
        if found.left_out:
            limit = f"--time-limit {self.question.time_limit:g}"
            self._note(f"{limit} left out at {found.place.label}: {', '.join(found.left_out)}")
        now = factors(found.seen())
        if drift(now) is not None:
            step = found.plain.price.plain
            self._note(
                f"a plain step took {step * now.plain * 1e3:.1f} ms at {found.place.label}, "
                f"{step * 1e3:.1f} by the calibration of {self.calibration.created[:10]}: "
                f"tokens/s and TPOT that are only predicted are scaled by {now.plain:.2f}; "
                "`magicdec calibrate` on a quiet machine renews it"
            )

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
