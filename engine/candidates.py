"""The valid entries of some rows of a cache, among which a draft chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from magicdec.kernels.attention import AttentionShape
from magicdec.kernels.sdpa import runs
from magicdec.kernels.transfer import to_device

T = TypeVar("T")


@dataclass(frozen=True)
class Candidates:
    """Neighbouring rows of a cache, `first` and those after it; lengths: their valid entries.

    It lives for one forward, and keeps what is the same for all its layers.
    """

    first: int
    lengths: tuple[int, ...]
    device: torch.device
    _kept: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + len(self.lengths))

    @property
    def longest(self) -> int:
        return max(self.lengths)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """What `make` gave when this was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    @cached_property
    def ends(self) -> Tensor:
        """`lengths` as [n, 1, 1]."""
        return to_device(self.lengths, self.device)[:, None, None]

    @cached_property
    def positions(self) -> Tensor:
        """[S]"""
        return torch.arange(self.longest, device=self.device)

    def hide(self, scores: Tensor, sinks: int = 0, recent: int = 0) -> Tensor:
        """scores [n, ..., S], in place: -inf outside of a row, for its sinks and its last ones."""

        def make() -> Tensor | None:
            if min(self.lengths) == self.longest and sinks == recent == 0:
                return None
            mask: Tensor = (self.positions < sinks) | (self.positions >= self.ends - recent)
            return mask  # [n, 1, S]

        mask = self.once(("hide", sinks, recent), make)
        if mask is None:
            return scores
        shape = (len(self.lengths), *(1,) * (scores.dim() - 2), self.longest)
        return scores.masked_fill_(mask.view(shape), -torch.inf)

    def best(self, scores: Tensor, budget: int, *, sinks: int = 0, recent: int = 0) -> Tensor:
        """The best-scored positions of each row and KV head, sinks and recent ones among them.

        scores: [n, Hkv, S], larger is better; they are overwritten. Returns int64 [n, Hkv, W] with
        W = min(budget, S), in no order, of which the first min(budget, length) are a row's. When
        the budget is too small for both, recent positions win.
        """
        width = min(budget, self.longest)
        everything = self.positions[:width].expand(*scores.shape[:2], -1)
        if width == self.longest:
            return everything
        recent = min(recent, budget)
        sinks = min(sinks, budget - recent)
        if sinks or recent:
            scores.masked_fill_(
                self.once(("pin", sinks, recent), lambda: self._pinned(sinks, recent)), torch.inf
            )
        if min(self.lengths) == self.longest:
            return scores.topk(width, dim=-1, sorted=False).indices
        # Without padding: which of equal scores are taken must not depend on batch mates.
        return torch.stack([
            everything[i] if length <= width
            else scores[i, :, :length].topk(width, dim=-1, sorted=False).indices
            for i, length in enumerate(self.lengths)
        ])  # fmt: skip

    def _pinned(self, sinks: int, recent: int) -> Tensor:
        last = (self.positions >= self.ends - recent) & (self.positions < self.ends)
        return last | (self.positions < sinks)  # [n, 1, S]


def split(
    slots: Sequence[int], lengths: Sequence[int], device: torch.device
) -> list[tuple[slice, Candidates]]:
    """Rows of a batch, in parts that lie side by side in the cache and are of similar length.

    With each part comes its slice of the batch.
    """
    shape = AttentionShape(tuple(slots), tuple(lengths), 1)
    return [
        (slice(a, b), Candidates(shape.rows[a], shape.lengths[a:b], device)) for a, b in runs(shape)
    ]
