"""Runs `magicdec tune`; whatever happens, what is known is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.progress import Display
from magicdec.cli.settings.grid_size import size_line
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.config import DraftWeights
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.request import Request
from magicdec.engine.selection import measured_as
from magicdec.engine.text.documents import digests
from magicdec.engine.text.ruler.names import require_length
from magicdec.profiles.calibration.calibration import Calibration, fingerprint_of
from magicdec.profiles.calibration.store import load_calibration
from magicdec.profiles.machine.expected_time import READ, Pace
from magicdec.profiles.recorded.reader import disturbances
from magicdec.profiles.tuning.candidate import Candidate
from magicdec.profiles.tuning.preparing import config_of
from magicdec.profiles.tuning.question import Answer, Question
from magicdec.profiles.tuning.recommend import Recommendation, recommend

if TYPE_CHECKING:
    from magicdec.engine.session import Session
    from magicdec.engine.text.documents import Document
    from magicdec.engine.text.ruler.workload import Workload
    from magicdec.profiles.tuning.tuner import Tuner
    from magicdec.profiles.tuning.verifying import Watch

    Opened = tuple[Session, Sequence[Document] | Sequence[Workload]]
    OpenEngine = Callable[[Sequence[str], Settings, Watch], Opened]


@dataclass(slots=True)
class TuneOutcome:
    """What a tuning has so far. weights: kinds that may draft, none for the usual ones."""

    settings: Settings
    question: Question
    sources: tuple[str, ...]
    weights: tuple[DraftWeights, ...] = ()
    env: dict[str, object] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)  # digests by name
    policies: Mapping[str, str] = field(default_factory=dict)  # schedules' names, told apart
    calibration: Calibration | None = None
    tuner: Tuner | None = None
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    error: Exception | None = None

    @property
    def answers(self) -> Sequence[Answer]:
        return [] if self.tuner is None else self.tuner.answers

    @property
    def recommendations(self) -> list[Recommendation | None]:
        return [recommend(answer, self.question.objective) for answer in self.answers]

    @property
    def lossy(self) -> str:
        """Who gave another text than plain decoding; empty when nobody did."""
        checked = {
            candidate.label: verdict
            for answer in self.answers
            for each in answer.verifications
            for candidate, verdict in each.checked.items()
        }
        return ", ".join(label for label, verdict in checked.items() if not verdict.ok)

    @property
    def notes(self) -> list[str]:
        found = [*self.warnings, *([] if self.tuner is None else self.tuner.notes)]
        return found + disturbances(cell for answer in self.answers for cell in answer.cells())


def tune_session(outcome: TuneOutcome, open_engine: OpenEngine, display: Display) -> None:
    """Ctrl-C or an error ends it early and marks the outcome.

    open_engine: see `session_api.open_engine`, which imports this module.
    """
    try:
        for context in outcome.question.contexts:
            require_length(outcome.sources, context)
        opened = open_engine(outcome.sources, outcome.settings, display.loading)
        tune_opened(outcome, *opened, display.loading, display.note)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except Exception as error:  # raised once what is known has been delivered
        outcome.error = error


def tune_opened(
    outcome: TuneOutcome, session: Session, documents: Sequence[Document] | Sequence[Workload],
    progress: Watch, say: Callable[[str], None] = lambda line: None,
) -> None:  # fmt: skip
    """With an engine session that is open already. say: hears once what there is to
    do. Whatever is raised, also by `progress`, what is known so far is in the outcome."""
    settings, config = outcome.settings, outcome.question.config
    from magicdec.profiles.files.gamma_names import told_apart
    from magicdec.profiles.tuning.tuner import Tuner, weighted
    from magicdec.profiles.tuning.variants import Policy

    outcome.documents = digests(documents)
    outcome.env = {**session.environment(), "documents": outcome.documents}
    changes = outcome.question.changes
    outcome.policies = {c.name: told_apart(c.name) for c in changes if isinstance(c, Policy)}
    outcome.warnings += [warning for document in documents for warning in document.warnings]
    drafters = weighted(
        outcome.question.drafters, outcome.weights, config, session.device, session.dtype
    )
    outcome.question = dataclasses.replace(outcome.question, drafters=tuple(drafters))

    def rows(context: int | None, count: int) -> list[Request]:
        return session.requests(
            documents, context=context, batch=count, take=settings.take, rows=settings.rows,
            prompt=settings.prompt, raw=settings.raw,
        )  # fmt: skip

    longest = max((context for context in outcome.question.contexts if context), default=None)
    outcome.warnings += session.warnings(rows(longest, 1), config)  # and refuses what cannot be
    _check_drafts(outcome.question, session)
    outcome.calibration, problem = _calibration(session, settings, progress)
    if problem:
        outcome.warnings.append(f"the calibration is used here and not stored: {problem}")
    say(_size(outcome, session))
    outcome.tuner = Tuner(session, outcome.calibration, outcome.question, rows, progress)
    outcome.tuner.run()


def _size(outcome: TuneOutcome, session: Session) -> str:
    """How many settings are priced, and about what surveying and running the best of them takes."""
    from magicdec.profiles.calibration.fit import shape_of
    from magicdec.profiles.tuning.tuner import LEAST_ROWS, MOST_ROWS

    asked, tokens = outcome.question, outcome.question.config.max_new_tokens
    shape = shape_of(session.spec, session.model_name)
    pace = Pace.of(outcome.calibration, shape, outcome.env)
    rows, ran = min(max(*asked.batches, LEAST_ROWS), MOST_ROWS), max(asked.batches)
    surveyed, proven = 0.0, 0.0
    for context in asked.contexts:
        length = min(context or shape.max_position, shape.max_position)
        once = pace.decode(rows, length, tokens) * (1 + READ * len(asked.drafters))
        surveyed += pace.prefill(length) + once
        runs = (1 + asked.verify + len(asked.changes)) * asked.repeats if asked.verify else 0
        proven += runs * pace.decode(ran, length, tokens)
    count = len(asked.batches) * len(asked.contexts) * len(asked.drafters) * len(asked.gammas)
    return size_line(count, surveyed + min(proven, asked.time_limit or proven), pace.guessed)


def _check_drafts(question: Question, session: Session) -> None:
    """Raises ConfigError, ModelError for a drafter or a variant that this model cannot be drafted
    by."""

    def sample(way: DraftSpec) -> Candidate:
        return Candidate(measured_as(way, question.config.sampling.temperature, "same"), 1)

    bases = (next(filter(change.takes, question.drafters)) for change in question.changes)
    for candidate in (
        *map(sample, question.drafters),
        *(change.over(sample(way)) for change, way in zip(question.changes, bases, strict=True)),
    ):
        session.drafts.spec(config_of(candidate, question.config))


def _calibration(
    session: Session, settings: Settings, progress: Watch
) -> tuple[Calibration, str]:  # fmt: skip
    """The stored one, or a new one, which takes its time; and why that could not be stored."""
    now = fingerprint_of(session.environment())
    found = load_calibration(session.model_name, now)
    stale = "there is none yet" if found is None else found.stale_because(now)
    if found is not None and not stale:
        return found, ""
    from magicdec.cli.calibrate_session import calibrate

    TERMINAL.note(f"calibrating {session.model_name} on this machine first, once: {stale}")

    def report(what: str, share: float | None) -> None:
        progress(f"calibrating first: {what}", share)

    made = calibrate(settings, "builtin:pydoc", report)
    return made.calibration, made.problem
