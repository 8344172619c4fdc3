"""The valid entries of some rows of a cache, among which a search chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

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
