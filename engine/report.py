"""Turns the event stream into a report, at any moment: a run that was interrupted has one too."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from magicdec.engine.events import (
    Event,
    FinishReason,
    GammaChosen,
    InnerDrafts,
    Loaded,
    PhaseTimes,
    PrefillProgress,
    RowFinished,
    RowStarted,
    RowStep,
    RunFinished,
    StepFinished,
)

RECENT_STEPS = 20  # what "acceptance now" looks back on


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """A run in numbers. What does not apply is None: plain decoding has no acceptance, not 0.

    `num_spec_steps` counts per row, and only steps in which the row had draft tokens to verify
    (near its end a row may have none left to draft).
    """

    finished: bool  # False: interrupted, or still running
    steps: int  # batch steps
    phases: PhaseTimes  # seconds; of an unfinished run, what was seen so far
    prompt_tokens: int  # of the rows that are or were prefilled
    reused_prompt_tokens: int  # of those: copied from another row, an earlier run or the disk
    num_spec_steps: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int  # and emitted
    num_cut_draft_tokens: int  # past a row's end; in neither of the two
    num_spec_tokens: int  # emitted by those steps
    histogram: tuple[int, ...]  # [a]: speculative row-steps that accepted exactly a draft tokens
    drafted_per_position: tuple[int, ...]  # [i]: row-steps that drafted a token at position i + 1
    siblings_tried: tuple[int, ...]  # [k], in trees: nodes whose k + 1st child was tried, because
    siblings_accepted: tuple[int, ...]  # those before it were not accepted; and that accepted it
    recent_acceptance_rate: float | None  # of the last RECENT_STEPS steps
    decode_tokens: int  # emitted by steps; the first token of a row comes from its prefill
    tpot_s: float | None  # mean over rows of (first token to last, selection too / tokens after it)
    draft_entries_read: float | None  # mean KV entries one draft step reads per row
    mean_gamma: float | None  # draft tokens per row-step, plain ones counted; None without steps
    gamma_chosen: tuple[GammaChosen, ...]  # in order; one for a fixed γ
    inner: InnerDrafts | None  # of a cascade, once the run is finished

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted."""
        return _ratio(self.num_accepted_draft_tokens, self.num_draft_tokens)

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens that a row gains in a step: 1 + accepted / steps, but for those steps in which a
        row ended inside its draft, and had no use for a bonus or recovered token."""
        return _ratio(self.num_spec_tokens, self.num_spec_steps)

    @property
    def acceptance_rate_per_position(self) -> tuple[float, ...]:
        """Of the row-steps that drafted position 1, 2, ...: the share in which it was accepted.

        Rows near their end draft less than γ, so that the later positions have fewer row-steps; so
        do drafts that a policy or the drafter ends early.
        """
        pairs = zip(self.accepted_per_position, self.drafted_per_position, strict=True)
        return tuple(accepted / drafted for accepted, drafted in pairs)

    @property
    def accepted_per_position(self) -> tuple[int, ...]:
        """Row-steps that accepted position 1, 2, ..., and so all before it."""
        return tuple(sum(self.histogram[position:]) for position in range(1, len(self.histogram)))[
            : len(self.drafted_per_position)
        ]

    @property
    def acceptance_rate_per_position_of_all(self) -> tuple[float, ...]:
        """The same of all row-steps that drafted anything, however far: vLLM's denominator."""
        return tuple(n / self.num_spec_steps for n in self.accepted_per_position)

    @property
    def sibling_acceptance(self) -> tuple[float, ...]:
        """p[k] of trees: how often the k-th child was accepted when those before it were not."""
        pairs = zip(self.siblings_accepted, self.siblings_tried, strict=True)
        return tuple(accepted / tried for accepted, tried in pairs)

    @property
    def decode_seconds(self) -> float:
        """Everything after load and prefill, selection included."""
        return self.phases.decode

    @property
    def tokens_per_s(self) -> float | None:
        """None where no step gave any: rows of one token have it from their prefill."""
        return _ratio(self.decode_tokens, self.decode_seconds) or None


@dataclass(frozen=True, slots=True)
class RowReport:
    """One row's output; `finish_reason` is None while it is unfinished."""

    row: int
    document: str
    prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None
    steps: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(Tally):
    """What a run produced and how it went, complete or not. Rows are those that have started."""

    rows: tuple[RowReport, ...]


@dataclass(slots=True)
class _Row:
    """What is known of a row so far."""

    started: RowStarted
    token_ids: list[int]
    text: list[str]
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0  # since its first token
    finished: RowFinished | None = None

    def report(self) -> RowReport:
        end = self.finished
        return RowReport(
            row=self.started.row,
            document=self.started.document,
            prompt_tokens=self.started.prompt_tokens,
            token_ids=end.token_ids if end else tuple(self.token_ids),
            text=end.text if end else "".join(self.text),
            finish_reason=end.finish_reason if end else None,
            steps=self.steps,
            drafted=self.drafted,
            accepted=self.accepted,
        )


@dataclass(slots=True)
class Recorder:
    """Consumes events with `add`; `tally` is cheap at any moment, `report` copies the output."""

    _rows: dict[int, _Row] = field(default_factory=dict)
    _active: dict[int, _Row] = field(default_factory=dict)
    _steps: int = 0
    _step_phases: PhaseTimes = field(default_factory=PhaseTimes)
    _loaded: float = 0.0
    _prefilled: float = 0.0  # seconds of the admissions before the current one
    _admission: float = 0.0  # seconds of the current one
    _prompts: list[int] = field(default_factory=lambda: [0, 0])  # tokens, reused; closed ones
    _admitted: tuple[int, int] = (0, 0)  # the same of the current admission
    _histogram: list[int] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)  # row-steps that drafted this far
    _tried: list[int] = field(default_factory=list)  # nodes at which the k-th child was tried
    _taken: list[int] = field(default_factory=list)  # and accepted
    _spec_steps: int = 0
    _drafted: int = 0
    _accepted: int = 0
    _cut: int = 0
    _spec_tokens: int = 0
    _decode_tokens: int = 0
    _recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    _row_steps: int = 0
    _chosen: list[GammaChosen] = field(default_factory=list)
    _end: RunFinished | None = None

    def add(self, event: Event) -> None:
        match event:
            case Loaded():
                self._loaded = event.seconds
            case PrefillProgress():
                # Rows that are already decoding wait for the newcomers.
                for row in self._active.values():
                    row.seconds += event.seconds - self._admission
                self._admission = event.seconds
                self._admitted = (event.done, event.reused)
            case RowStarted():
                self._close_admission()
                row = _Row(event, [event.token], [event.text])
                self._rows[event.row] = self._active[event.row] = row
            case StepFinished():
                self._close_admission()
                self._add_step(event)
            case GammaChosen():
                self._chosen.append(event)
            case RowFinished():
                self._rows[event.row].finished = event
                self._active.pop(event.row, None)
            case RunFinished():
                self._end = event

    def _close_admission(self) -> None:
        self._prefilled += self._admission
        self._admission = 0.0
        self._prompts = [a + b for a, b in zip(self._prompts, self._admitted, strict=True)]
        self._admitted = (0, 0)

    def _add_step(self, event: StepFinished) -> None:
        self._steps += 1
        self._row_steps += len(event.rows)
        passed = event.waited + event.phases
        self._step_phases += passed
        for share in event.rows:
            row = self._rows[share.row]
            row.token_ids += share.tokens
            row.text.append(share.text)
            row.steps += 1
            row.drafted += share.judged
            row.accepted += share.accepted
            row.seconds += passed.decode
            self._decode_tokens += len(share.tokens)
            if share.drafted:
                self._count(share)
        drafted = sum(share.judged for share in event.rows)
        if drafted:
            self._recent.append((sum(share.accepted for share in event.rows), drafted))

    def _count(self, share: RowStep) -> None:
        self._spec_steps += 1
        self._drafted += share.judged
        self._accepted += share.accepted
        self._cut += share.cut
        self._spec_tokens += len(share.tokens)
        missing = share.depth + 1 - len(self._histogram)
        self._histogram += [0] * missing
        self._positions += [0] * (share.depth - len(self._positions))
        for position in range(share.depth):
            self._positions[position] += 1
        self._histogram[share.accepted] += 1
        for child, children in share.tree.tried if share.tree else ():
            missing = children - len(self._tried)
            self._tried += [0] * missing
            self._taken += [0] * missing
            for k in range(child or children):
                self._tried[k] += 1
            if child:
                self._taken[child - 1] += 1

    def _phases(self) -> PhaseTimes:
        if self._end:
            return self._end.phases
        seen = self._step_phases
        return PhaseTimes(
            self._loaded, self._prefilled + self._admission,
            seen.select, seen.draft, seen.verify, seen.commit, seen.other,
        )  # fmt: skip

    def _tpot(self) -> float | None:
        later = [
            row.seconds / (len(row.token_ids) - 1)
            for row in self._rows.values()
            if len(row.token_ids) > 1
        ]
        return _ratio(sum(later), len(later))

    def tally(self) -> Tally:
        return Tally(
            finished=self._end is not None,
            steps=self._steps,
            phases=self._phases(),
            prompt_tokens=self._prompts[0] + self._admitted[0],
            reused_prompt_tokens=self._prompts[1] + self._admitted[1],
            num_spec_steps=self._spec_steps,
            num_draft_tokens=self._drafted,
            num_accepted_draft_tokens=self._accepted,
            num_cut_draft_tokens=self._cut,
            num_spec_tokens=self._spec_tokens,
            histogram=tuple(self._histogram),
            drafted_per_position=tuple(self._positions),
            siblings_tried=(tried := tuple(filter(None, self._tried))),
            siblings_accepted=tuple(self._taken[: len(tried)]),
            recent_acceptance_rate=_ratio(
                sum(accepted for accepted, _ in self._recent),
                sum(drafted for _, drafted in self._recent),
            ),
            decode_tokens=self._decode_tokens,
            tpot_s=self._tpot(),
            draft_entries_read=self._end.draft_entries_read if self._end else None,
            mean_gamma=_ratio(self._drafted, self._row_steps),
            gamma_chosen=tuple(self._chosen),
            inner=self._end.inner if self._end else None,
        )

    def report(self) -> RunReport:
        rows = tuple(row.report() for _, row in sorted(self._rows.items()))
        tally = self.tally()
        numbers = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
        return RunReport(rows=rows, **numbers)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
