"""Ends a run whose logits are not finite.

NaN and infinity spread to every later token. Both runs of a comparison then agree on nonsense, so
no comparison of texts can notice them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from magicdec.engine.errors import NotFiniteError


def finite(logits: Tensor) -> Tensor:
    """logits [..., V] -> bool [...]: one pass over them, and no finite ones overflow their sum."""
    return logits.sum(dim=-1, dtype=torch.float32).isfinite()


def require_finite(ok: Sequence[int], who: str, dtype: torch.dtype) -> None:
    """ok: of each position that counts, whether its logits were. Raises NotFiniteError."""
    if all(ok):
        return
    small = torch.finfo(dtype).bits < 32
    range_of = f", or its numbers are too large for {dtype}".replace("torch.", "") if small else ""
    remedy = ", or add --dtype float32" if small else ""
    raise NotFiniteError(
        f"{who} computes logits that are not finite (NaN or infinity): its weights are damaged"
        f"{range_of}; download or convert it again{remedy}"
    )


@contextmanager
def rounding(who: str, dtype: torch.dtype) -> Iterator[None]:
    """FBGEMM cannot round to int8 what is no number. Raises NotFiniteError instead of its error."""
    try:
        yield
    except RuntimeError as error:
        if "ChooseQuantizationParams" not in str(error):
            raise
        require_finite([0], who, dtype)


class Watched:
    """Remembers the logits of one drafter's passes until a step asks; nothing waits for a device.

    who: what a message calls it.
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self._sums: list[Tensor] = []

    def saw(self, logits: Tensor) -> None:
        self._sums.append(logits.sum(dtype=torch.float32))

    def taken(self) -> Tensor | None:
        """Whether all were finite since this was asked last: bool scalar; None without any."""
        sums, self._sums = self._sums, []
        return torch.stack(sums).isfinite().all() if sums else None
