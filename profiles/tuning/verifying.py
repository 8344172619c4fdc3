"""Real runs of the best few and of plain decoding, on the same rows, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event, StepFinished
from magicdec.profiles.costs.step_times import Seen, StepTimes
from magicdec.profiles.recorded.from_reports import cell_of, sample_of
from magicdec.profiles.recorded.passes import Pass, Passes, full_steps, steadiness
from magicdec.profiles.recorded.schema import Cell, Predicted
from magicdec.profiles.tuning.candidate import PLAIN, Candidate, Objective, Place
from magicdec.profiles.tuning.correcting import corrected, factors, next_to_run
from magicdec.profiles.tuning.pricing import Memory, Option
from magicdec.profiles.tuning.ranking import Measured, unsteady
from magicdec.profiles.tuning.variants import Change, Variant, variant_of


@dataclass(slots=True)
class Allowance:
    """So many seconds from now on; None for any number. `now` is a clock that never runs back."""

    seconds: float | None = None
    now: Callable[[], float] = time.monotonic
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.now()

    @property
    def left(self) -> float:
        if self.seconds is None:
            return float("inf")
        return max(0.0, self.seconds - (self.now() - self._begun))

    def share(self, parts: int) -> Allowance:
        """An equal part of what is left, beginning now."""
        if self.seconds is None:
            return Allowance(None, self.now)
        return Allowance(self.left / parts, self.now)


EXTRA = 2  # rounds
Trial = Option | Variant


class Watch(Protocol):
    def __call__(self, what: str, share: float | None) -> None:
        """What is being done, and how much of it is done where that is known."""


@dataclass(slots=True)
class Verification:
    """Runs of one place, kept as they are done; complete rounds count.

    configure: the settings of a candidate's run; memory: what it takes. pool: what may run, plain
    decoding among it; changes: variants of it that are to run, too. tried: who ran besides plain
    decoding, in the order in which they were chosen. left_out: what there was no time for;
    not_tried: what could not be, and why.
    """

    passes: Passes
    place: Place
    objective: Objective
    pool: list[Option]
    configure: Callable[[Candidate], DecodeConfig]
    memory: Callable[[Candidate], Memory]
    changes: Sequence[Change] = ()
    tried: list[Trial] = field(default_factory=list)
    done: dict[Candidate, list[Pass]] = field(default_factory=dict)
    checked: dict[Candidate, Losslessness] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)

    def run(self, most: int, repeats: int, allowance: Allowance, watch: Watch) -> Iterator[None]:
        """Yields after each run. The first round chooses up to `most` candidates, one after the
        other, and then tries the variants; every second round goes backwards, so that a machine
        which gets slower or faster does so to everybody. Where rounds differ much, up to EXTRA more
        are run: then one disturbed round does not move the medians.

        Nothing begins that `allowance` has no time for, by what the runs before it took. A
        candidate after the first needs time for all its rounds. Raises what `Session.run` raises.
        """
        if self.plain.seconds > allowance.left:
            self.left_out.append("every real run")
            return
        self._run(PLAIN, f"round 1 of {repeats}", watch)
        yield
        for trial in self._trials(most):
            seconds = self._expected(trial)
            later = (repeats - 1) * (self._round_s() + seconds)
            if seconds + (later if self.tried else 0) > allowance.left:
                self.left_out.append(_named(trial))
                continue
            self._run(trial.candidate, f"round 1 of {repeats}", watch)
            self._check(trial.candidate, watch)
            self.tried.append(trial)
            yield
        for number in range(1, repeats + EXTRA):
            if number >= repeats and (repeats == 1 or not unsteady(self.measured())):
                break
            title = f"round {number + 1} of {repeats}"
            if number >= repeats:
                title = f"round {number + 1}, because the rounds before differ"
            if self._round_s() > allowance.left:
                self.left_out.append(title)
                break
            for candidate in self._everybody()[:: -1 if number % 2 else 1]:
                self._run(candidate, title, watch)
                yield

    def _trials(self, most: int) -> Iterator[Trial]:
        """Each is chosen by the runs before it."""
        while len(self.options) < most and not self.left_out:
            option = next_to_run(self.pool, self.seen(), self.objective)
            if option is None:
                break
            yield option
        for change in self.changes:
            wrong = {candidate for candidate, found in self.checked.items() if not found.ok}
            sound = [option for option in self.pool if option.candidate not in wrong]
            now = factors(self.seen())
            made = variant_of(change, sound, self.measured(), now, self.objective, self.memory)
            if isinstance(made, Variant):
                yield made
            else:
                self.not_tried.append(made)

    @property
    def options(self) -> list[Option]:
        """Those of `tried` that were predicted."""
        return [trial for trial in self.tried if isinstance(trial, Option)]

    @property
    def variants(self) -> list[Variant]:
        """Those that were not."""
        return [trial for trial in self.tried if isinstance(trial, Variant)]

    @property
    def plain(self) -> Option:
        return next(option for option in self.pool if option.candidate.plain)

    def seen(self) -> list[tuple[Option, Seen]]:
        """The first runs beside their predictions; [] before plain decoding ran."""
        if PLAIN not in self.done:
            return []
        return [(self.plain, full_steps(self.done[PLAIN][:1], ()))] + [
            (option, full_steps((), self.done[option.candidate][:1])) for option in self.options
        ]

    def _everybody(self) -> list[Candidate]:
        return [PLAIN, *(trial.candidate for trial in self.tried)]

    def _expected(self, trial: Trial) -> float:
        """Seconds of a run that has not been, by what the steps of the others took; of a variant
        what it builds on would take."""
        option = trial if isinstance(trial, Option) else trial.base
        before = self.done[PLAIN][0].report
        copying = before.phases.prefill if not sample_of(before).prefilled else 0.0
        return corrected(option, factors(self.seen())).seconds + copying

    def _round_s(self) -> float:
        """Seconds of a round; its prompts' K/V are there."""
        last = [self.done[candidate][-1].report.phases for candidate in self._everybody()]
        return sum(phases.decode for phases in last) + len(last) * min(p.prefill for p in last)

    @property
    def rounds(self) -> int:
        """In which everybody ran."""
        return min(len(self.done.get(candidate, ())) for candidate in self._everybody())

    def measured(self) -> list[Measured]:
        """Of the complete rounds: plain decoding, and all that gave its text; [] without any."""
        rounds = self.rounds
        if not rounds:
            return []
        plain = tuple(sample_of(done.report) for done in self.done[PLAIN][:rounds])
        found = []
        for candidate in self._everybody():
            verdict = self.checked.get(candidate)
            if verdict is not None and not verdict.ok:
                continue
            reports = [done.report for done in self.done[candidate][:rounds]]
            samples = tuple(sample_of(report) for report in reports)
            tpots = tuple(report.tpot_s or 0.0 for report in reports)
            found.append(Measured(self.place, candidate, samples, tpots, plain))
        return found

    def cells(self) -> list[Cell]:
        """For a profile."""
        rounds = self.rounds
        if not rounds:
            return []
        plain, found = self.done[PLAIN][:rounds], []
        for trial in self.tried:
            mine = self.done[trial.candidate][:rounds]
            found.append(
                cell_of(
                    trial.candidate.key(self.place),
                    [(b.report, a.report) for b, a in zip(plain, mine, strict=True)],
                    steadiness=[steadiness(b, a) for b, a in zip(plain, mine, strict=True)],
                    step=full_steps(plain, mine),
                    lossless=self.checked.get(trial.candidate),
                    predicted=_predicted(trial),
                    draft_identity=self.passes.session.drafts.identity(
                        self.configure(trial.candidate)
                    ),
                )
            )
        return found

    def _run(self, candidate: Candidate, title: str, watch: Watch) -> None:
        title, emitted, config = f"{title}: {candidate.label}", 0, self.configure(candidate)
        total = max(1, len(self.passes.requests) * (config.max_new_tokens - 1))
        watch(title, 0.0)

        def listen(event: Event) -> None:
            nonlocal emitted
            if isinstance(event, StepFinished):
                emitted += sum(len(row.tokens) for row in event.rows)
                watch(title, min(1.0, emitted / total))

        done = self.passes.run(config, listen)
        self.done.setdefault(candidate, []).append(done)

    def _check(self, candidate: Candidate, watch: Watch) -> None:
        watch("comparing the texts", None)
        plain, mine = self.done[PLAIN][0], self.done[candidate][0]
        self.checked[candidate] = self.passes.check(self.configure(candidate), plain, mine)


def _named(trial: Trial) -> str:
    label = trial.candidate.label
    return f"{label} ({trial.speedup:.2f}× predicted)" if isinstance(trial, Option) else label


def _predicted(trial: Trial) -> Predicted | None:
    if isinstance(trial, Variant):
        return None
    price = trial.price
    return Predicted(trial.speedup, StepTimes(price.plain, price.draft, price.verify, None, None))
