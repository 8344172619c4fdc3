"""A profile as data. Raw counts and seconds only: every rate is a property."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, fields
from typing import Literal

from magicdec.engine.draft_spec import NO_TREE, DraftSpec
from magicdec.engine.events import PhaseTimes
from magicdec.profiles.acceptance.rates import AcceptanceCounts
from magicdec.profiles.costs.step_times import NOT_MEASURED, Seen
from magicdec.profiles.machine.steadiness import Steadiness
from magicdec.profiles.recorded.header import Header

SCHEMA = "magicdec.profile/2"
STEP = ("plain", "draft", "verify", "select")  # what a file has of the times of a step
OLDER = ("magicdec.profile/1",)  # without `draft`, `draft_kv`: the model itself over a selection


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey(DraftSpec):
    """One setting: a way to draft, so far ahead, at a place."""

    batch: int
    context: int  # prompt tokens of a row
    gamma: int

    @classmethod
    def at(cls, drafter: DraftSpec, *, batch: int, context: int, gamma: int) -> CellKey:
        """A drafter at a place."""
        return cls(*astuple(drafter), batch=batch, context=context, gamma=gamma)

    def __lt__(self, other: DraftSpec) -> bool:
        if not isinstance(other, CellKey):
            return NotImplemented
        mine, theirs = ((k.batch, k.context, k.drafter.order, k.gamma) for k in (self, other))
        return mine < theirs

    @property
    def drafter(self) -> DraftSpec:
        return DraftSpec(*(getattr(self, field.name) for field in fields(DraftSpec)))

    @property
    def label(self) -> str:
        return f"B {self.batch}, context {self.context:,}, {self.drafter.ahead(self.gamma)}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One pass over the rows, plain or speculative. Plain decoding has no draft counts."""

    tokens: int  # emitted by steps
    seconds: float  # after prefill, selection included
    steps: int  # of the batch
    phases: PhaseTimes
    num_spec_steps: int | None = None  # per row
    num_draft_tokens: int | None = None
    num_accepted_draft_tokens: int | None = None
    prefilled: bool = True  # False: the prompts' K/V were all there already, from an earlier pass
    row_steps: int | None = None  # steps of each row, summed: those that drafted nothing, too
    # None in older files, which counted drafts past a row's end as accepted.
    num_cut_draft_tokens: int | None = None
    num_spec_tokens: int | None = None  # emitted by the steps that drafted

    @property
    def tokens_per_s(self) -> float | None:
        return self.tokens / self.seconds if self.tokens and self.seconds else None


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same rows decoded both ways; `plain` is None where it was not, `steadiness` where
    nobody watched the machine."""

    plain: Sample | None
    speculative: Sample
    steadiness: Steadiness | None = None

    @property
    def speedup(self) -> float | None:
        """Plain over speculative decode seconds, for the same number of tokens."""
        return self._speedup()

    @property
    def speedup_end_to_end(self) -> float | None:
        """The same with the plain run's load and prefill on either side: both need them, one does
        them. What the speculative run loads besides is its own.

        None where that run did none, as in a sweep: its prefill seconds are of a copy.
        """
        if self.plain is None or not self.plain.prefilled:
            return None
        phases = self.plain.phases
        return self._speedup(phases.load + phases.prefill, self.speculative.phases.load)

    def _speedup(self, shared: float = 0.0, own: float = 0.0) -> float | None:
        plain, after = self.plain, self.speculative
        if plain is None or not (plain.tokens and plain.seconds and after.tokens and after.seconds):
            return None
        before = plain.seconds * after.tokens / plain.tokens
        return (shared + before) / (shared + own + after.seconds)


@dataclass(frozen=True, slots=True)
class Prefill:
    """Of a cell's rows, before anything was timed. Of `prompt_tokens` so many were there already:
    shared by rows, or kept from another cell or run. With none reused the seconds are a prefill's,
    with all reused those of a copy."""

    seconds: float
    prompt_tokens: int
    reused_tokens: int


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the cost model said before the cell was measured."""

    speedup: float | None = None
    step: Seen = NOT_MEASURED


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the texts of both runs agree; `ok` unless a difference is more than a tie."""

    checked: bool
    identical: bool | None = None
    ok: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one setting gave. A failed cell has an error and whatever was measured before it."""

    key: CellKey
    draft_identity: str | None = None  # of the other model that drafts; its name is the key's
    status: Literal["ok", "failed"] = "ok"
    error: str | None = None
    repeats: tuple[Repeat, ...] = ()
    drafted_per_position: tuple[int, ...] = ()  # [i]: row-steps that drafted position i + 1
    accepted_per_step: tuple[int, ...] = ()  # [a]: row-steps that accepted exactly a tokens
    step: Seen = NOT_MEASURED
    peak_memory_bytes: int | None = None
    predicted: Predicted | None = None
    prefill: Prefill | None = None
    lossless: Verdict = field(default_factory=lambda: Verdict(False))

    @property
    def num_spec_steps(self) -> int:
        return sum(self.accepted_per_step)

    @property
    def num_draft_tokens(self) -> int:
        """In a tree more than one for a position."""
        if self.key.tree != NO_TREE:
            return sum(repeat.speculative.num_draft_tokens or 0 for repeat in self.repeats)
        return sum(self.drafted_per_position)

    @property
    def num_accepted_draft_tokens(self) -> int:
        return sum(a * steps for a, steps in enumerate(self.accepted_per_step))

    @property
    def accepted_per_position(self) -> tuple[int, ...]:
        """[i]: row-steps that accepted position i + 1, and so all before it."""
        return tuple(
            sum(self.accepted_per_step[i + 1 :]) for i in range(len(self.drafted_per_position))
        )

    @property
    def acceptance(self) -> AcceptanceCounts:
        """Of the positions that were drafted."""
        drafted = tuple(filter(None, self.drafted_per_position))
        return AcceptanceCounts(drafted, self.accepted_per_position[: len(drafted)])

    @property
    def acceptance_rate_per_position(self) -> tuple[float, ...]:
        """Unconditional, as vLLM's; of the row-steps that drafted so far."""
        return self.acceptance.shares

    @property
    def acceptance_rate(self) -> float | None:
        return self.num_accepted_draft_tokens / self.num_draft_tokens if self.drafted else None

    @property
    def mean_acceptance_length(self) -> float | None:
        steps = self.num_spec_steps
        return self.num_spec_tokens / steps if steps else None

    @property
    def num_spec_tokens(self) -> int:
        """Emitted by the steps that drafted: one more than each accepted, unless its row ended."""
        said = [repeat.speculative.num_spec_tokens for repeat in self.repeats]
        known = [tokens for tokens in said if tokens is not None]
        if known and len(known) == len(said):
            return sum(known)
        return self.num_accepted_draft_tokens + self.num_spec_steps

    @property
    def mean_gamma(self) -> float | None:
        """Draft tokens of a row's step, over all its steps: also those in which it drafted none.

        None where a repeat does not say how many there were.
        """
        steps = self.samples(lambda repeat: repeat.speculative.row_steps)
        known = len(steps) == len(self.repeats) and sum(steps) > 0
        return self.num_draft_tokens / sum(steps) if known else None

    @property
    def drafted(self) -> bool:
        return self.num_draft_tokens > 0

    @property
    def speedup(self) -> float | None:
        """Median over the repeats."""
        return median_of(self.samples(lambda repeat: repeat.speedup))

    @property
    def speedup_end_to_end(self) -> float | None:
        return median_of(self.samples(lambda repeat: repeat.speedup_end_to_end))

    @property
    def tokens_per_s(self) -> float | None:
        return median_of(self.samples(lambda repeat: repeat.speculative.tokens_per_s))

    @property
    def plain_tokens_per_s(self) -> float | None:
        return median_of(self.samples(lambda r: r.plain.tokens_per_s if r.plain else None))

    @property
    def watched(self) -> tuple[Steadiness, ...]:
        """How steady the machine was, of the repeats of which it is known."""
        return tuple(r.steadiness for r in self.repeats if r.steadiness is not None)

    @property
    def disturbed(self) -> bool:
        """Whether any repeat was: then times and speedups are not to be trusted."""
        return any(steady.disturbed for steady in self.watched)

    @property
    def others(self) -> float | None:
        """The most that other programs took of the CPUs in a repeat."""
        known = [steady.others for steady in self.watched if steady.others is not None]
        return max(known, default=None)

    def samples(self, of: Callable[[Repeat], float | None]) -> tuple[float, ...]:
        """One figure per repeat, without those that were not measured."""
        return tuple(value for repeat in self.repeats if (value := of(repeat)) is not None)


@dataclass(frozen=True, slots=True)
class Profile:
    """A file's contents. `warnings` tell what a reader had to overlook."""

    header: Header
    cells: tuple[Cell, ...]
    warnings: tuple[str, ...] = ()

    @property
    def finished(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.status == "ok")


def median_of(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None
