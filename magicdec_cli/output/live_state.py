"""What the live display knows; fed by events, drawn by live_layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from magicdec.cli.output.row_text import RowText
from magicdec.engine.events import (
    Event,
    PrefillProgress,
    RowFinished,
    RowStarted,
    RunFinished,
    StepFinished,
)
from magicdec.engine.report import Recorder, Tally

PLAIN, SPECULATIVE = "plain", "speculative"  # titles of the two kinds of passes


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The settings that frame a run's numbers."""

    model: str
    device: str
    dtype: str
    selector: str
    batch: int
    context: int  # longest prompt
    budget: int | None  # None: the draft reads no KV entries, or all
    gamma: int
    temperature: float
    rows: int
    max_new_tokens: int
    predicted: float | None = None  # decode speedup, when there is a calibration
    gamma_policy: str = "fixed"  # what chooses γ; unless fixed, `gamma` is the most it may choose
    penalties: str = ""  # empty: none
    tree: str = ""  # which, and of how many tokens at most; empty: none


@dataclass(slots=True)
class RowState:
    text: RowText = field(default_factory=RowText)
    tokens: int = 0
    finish_reason: str | None = None
    rejected: str = ""  # what the draft said in the last step instead of the target's token


@dataclass(slots=True)
class LiveState:
    """One pass over the rows, plain or speculative."""

    info: RunInfo
    title: str
    recorder: Recorder
    baseline: Tally | None = None  # plain decoding of the same rows, when it came first
    prefill: PrefillProgress | None = None  # while it is going on
    rows: dict[int, RowState] = field(default_factory=dict)
    marked: bool = False  # the rows' text tells the draft's tokens from the target's

    def add(self, event: Event) -> None:
        match event:
            case PrefillProgress():
                self.prefill = event
            case RowStarted():
                self.prefill = None
                row = self.rows[event.row] = RowState()
                row.text.add(event.text, None)
                row.tokens = 1
            case StepFinished():
                self.prefill = None
                for share in event.rows:
                    row = self.rows[share.row]
                    row.tokens += len(share.tokens)
                    row.text.add(share.text, share.accepted_chars if share.drafted else None)
                    self.marked |= share.drafted > 0 and share.accepted_chars is not None
            case RowFinished():
                self.rows[event.row].finish_reason = event.finish_reason
            case RunFinished():
                self.prefill = None

    @property
    def speculative(self) -> bool:
        return self.title != PLAIN

    @property
    def tokens(self) -> int:
        return sum(row.tokens for row in self.rows.values())

    @property
    def share(self) -> float:
        """Of the rows' work; a row that ended early is done."""
        done = sum(
            1.0 if row.finish_reason else row.tokens / self.info.max_new_tokens
            for row in self.rows.values()
        )
        return done / max(self.info.rows, 1)

    def shown_rows(self, room: int) -> Sequence[tuple[int, RowState]]:
        """At most `room` rows: those still decoding first, then the latest finished."""
        active = [(i, row) for i, row in sorted(self.rows.items()) if not row.finish_reason]
        ended = [(i, row) for i, row in sorted(self.rows.items()) if row.finish_reason]
        return sorted((active + ended[::-1])[:room], key=lambda shown: shown[0])


def prefill_rate(progress: PrefillProgress) -> float | None:
    """Prompt tokens computed per second; copied ones cost next to nothing."""
    computed = progress.done - progress.reused
    return computed / progress.seconds if computed > 0 and progress.seconds > 0 else None


def prefill_seconds_left(progress: PrefillProgress) -> float | None:
    """At most this long: what later rows share with earlier ones is copied, not computed."""
    speed = prefill_rate(progress)
    return (progress.total - progress.done) / speed if speed else None
