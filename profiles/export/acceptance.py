"""Acceptance by draft position, pooled from counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from magicdec.engine.harmless import shown
from magicdec.profiles.export.settings import wrong
from magicdec.profiles.storage.schema import Cell


@dataclass(frozen=True, slots=True)
class PooledAcceptance:
    """[i]: row-steps that drafted position i + 1, and that accepted it (and so all before it)."""

    drafted: tuple[int, ...]
    accepted: tuple[int, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Plain ratios. Where γ changes, later positions are drafted in other steps than earlier
        ones, when the draft is sure of itself above all: they may well rise."""
        return tuple(a / d for a, d in zip(self.accepted, self.drafted, strict=True))

    @property
    def rates(self) -> tuple[float, ...]:
        """Unconditional rates, non-increasing.

        Rows near their end draft fewer positions, so that the plain ratios can rise from one
        position to the next by chance. Neighbours that do are pooled until none does: the
        likeliest non-increasing rates (pool adjacent violators, Ayer et al. 1955).
        """
        blocks: list[tuple[int, int, int]] = []  # drafted, accepted, positions
        for drafted, accepted in zip(self.drafted, self.accepted, strict=True):
            block = (drafted, accepted, 1)
            while blocks and blocks[-1][1] * block[0] < block[1] * blocks[-1][0]:
                before = blocks.pop()
                block = (before[0] + block[0], before[1] + block[1], before[2] + block[2])
            blocks.append(block)
        return tuple(a / d for d, a, positions in blocks for _ in range(positions))

    def length(self, gamma: int) -> float:
        """Ω: mean tokens of a step that drafts `gamma`, 1 + Σ of the rates (Ω of theory)."""
        assert gamma <= len(self.drafted), "acceptance beyond what was drafted is not known"
        return 1 + sum(self.rates[:gamma])


def pool(cells: Iterable[Cell]) -> PooledAcceptance:
    """Sums the counts of all cells, whatever their γ: position i is drafted alike for any γ ≥ i."""
    drafted: list[int] = []
    accepted: list[int] = []
    for cell in cells:
        known = [d for d in cell.drafted_per_position if d]
        missing = len(known) - len(drafted)
        drafted += [0] * missing
        accepted += [0] * missing
        for i, (d, a) in enumerate(zip(known, cell.accepted_per_position, strict=False)):
            drafted[i] += d
            accepted[i] += a
    return PooledAcceptance(tuple(drafted), tuple(accepted))


def check_rates(rates: Sequence[float], engine: str) -> None:
    for rate in rates:
        if not 0 <= rate <= 1:
            raise wrong(engine, f"acceptance rates lie in 0..1, got {shown(rate)}")
    if list(rates) != sorted(rates, reverse=True):
        raise wrong(engine, "acceptance rates must not rise from one position to the next")
