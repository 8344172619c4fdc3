"""What the engine tells whoever listens: frozen data, no tensors, no text formatting.

`Engine.run` yields these in order: Loaded, PrefillProgress* RowStarted (per row), StepFinished*
(before one, GammaChosen where a policy changes γ), RowFinished (per row, right after the step that
ended it), RunFinished. A row is the index of its request; rows that wait for a slot start later.
`report.Recorder` turns the stream into a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["length", "eos", "stop"]


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds per phase, exclusive of each other; their sum is `wall`.

    `load`: what a process prepares once and keeps (weights, their int8 twin, a draft model), and
    the run's caches, all before the first prompt.
    """

    load: float = 0.0
    prefill: float = 0.0
    select: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    commit: float = 0.0
    other: float = 0.0

    @property
    def wall(self) -> float:
        return self.load + self.prefill + self.decode

    @property
    def decode(self) -> float:
        """Everything after load and prefill."""
        return self.select + self.draft + self.verify + self.commit + self.other

    def __add__(self, more: PhaseTimes) -> PhaseTimes:
        return PhaseTimes(*(getattr(self, f) + getattr(more, f) for f in PHASES))


PHASES = tuple(PhaseTimes.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All is there that is prepared once; the first prompt is next. `seconds`: phase `load`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt tokens whose K/V are in the cache. `reused` of `done` were copied, not computed."""

    row: int
    row_done: int
    row_total: int
    done: int  # over all rows of this admission
    total: int
    reused: int
    seconds: float  # since this admission began


@dataclass(frozen=True, slots=True)
class RowStarted:
    """A row is prefilled and has its first token (drawn from the prefill's last logits)."""

    row: int
    document: str
    prompt_tokens: int
    token: int
    text: str


@dataclass(frozen=True, slots=True)
class TreeShare:
    """What a row's tree came to in one step.

    tried: at each node that the target came to, which child it went on to, counted from 1, or 0,
    and how many children there were.
    """

    depth: int  # the most tokens that could have been accepted
    tried: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RowStep:
    """One row's share of one step.

    `tokens` were emitted by the step, up to where the row ended; the first `accepted` of them are
    of `drafted` draft tokens. `cut` of those stood past the row's end (of a tree: generations): the
    target's view of them counts nowhere. `accepted_chars` of `text` came from accepted tokens, the
    rest from the target's own; None when the engine does not tell. `rejected`: the draft tokens
    that the target did not take, of a draft that is no tree.
    """

    row: int
    tokens: tuple[int, ...]
    text: str
    drafted: int
    accepted: int
    accepted_chars: int | None = None
    tree: TreeShare | None = None
    rejected: tuple[int, ...] = ()
    cut: int = 0

    @property
    def depth(self) -> int:
        """The most draft tokens that the step could have accepted before the row's end."""
        return (self.drafted if self.tree is None else self.tree.depth) - self.cut

    @property
    def judged(self) -> int:
        """Draft tokens without those past the row's end; of a tree all."""
        return self.drafted - self.cut if self.tree is None else self.drafted


@dataclass(frozen=True, slots=True)
class StepFinished:
    """One draft-verify-commit step of every active row; `phases` covers this step alone.

    `waited`: what came between the step before and this one, the selection for new rows above all.
    """

    step: int
    gamma: int
    rows: tuple[RowStep, ...]
    phases: PhaseTimes
    waited: PhaseTimes = PhaseTimes()


@dataclass(frozen=True, slots=True)
class GammaChosen:
    """The policy changed γ: from step `step` on, for so many rows of that context (mean)."""

    step: int
    rows: int
    context: int
    gamma: int


@dataclass(frozen=True, slots=True)
class InnerDrafts:
    """Of a cascade: what its inner drafter put to the middle one. `passes` of the middle, each row
    counted, gave the accepted ones and one token more."""

    passes: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class RowFinished:
    """A row ended, with its whole output; `text` lacks EOS and stop string."""

    row: int
    finish_reason: FinishReason
    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class RunFinished:
    """Nothing is left to decode. `phases` covers the whole run and sums to its wall time."""

    phases: PhaseTimes
    draft_entries_read: float  # mean KV entries one draft step read per row; 0 without drafting
    inner: InnerDrafts | None = None  # None: no cascade


Event = (
    Loaded | PrefillProgress | RowStarted | GammaChosen | StepFinished | RowFinished | RunFinished
)
