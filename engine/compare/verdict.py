"""The verdict of a comparison: identical, tied, or wrong. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token of a row that differs.

    gap: how much the target prefers the plain token, in logits, recomputed from scratch.
    tolerance: `lossless.ROUNDINGS` times the rounding of a pass: the larger of the difference
    that the pass's width makes to the logits and the dtype's epsilon at the largest logit.
    """

    row: int
    position: int  # index into the generated tokens
    plain_token: int | None  # None: that output had ended
    speculative_token: int | None
    gap: float
    tolerance: float

    @property
    def tie(self) -> bool:
        return abs(self.gap) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Losslessness:
    """The verdict of a comparison; `ok` unless a difference is not a tie."""

    checked: bool
    divergences: tuple[Divergence, ...] = ()
    reason: str = ""  # why it was not checked

    @property
    def identical(self) -> bool | None:
        return not self.divergences if self.checked else None

    @property
    def ok(self) -> bool:
        return all(d.tie for d in self.divergences)


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that differs, or None. A longer output differs after the shorter."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))
