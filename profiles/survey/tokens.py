"""What logits say of tokens that are known."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from magicdec.engine.config import SamplingConfig
from magicdec.engine.sampling import distribution


def span(tokens: Sequence[int], start: int, width: int) -> list[int]:
    """`width` tokens from `start` on; where they end, the last one again."""
    part = list(tokens[start : start + width])
    return part + part[-1:] * (width - len(part))


def chances_of(logits: Tensor, tokens: Tensor, sampling: SamplingConfig) -> Tensor:
    """logits [n, T, V], tokens [n, T] -> float64 [n, T]; greedily 1 for the likeliest, else 0."""
    if sampling.greedy:
        return (logits.argmax(dim=-1) == tokens).double()
    return distribution(logits, sampling).gather(2, tokens[..., None])[..., 0].double()
