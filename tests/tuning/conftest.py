"""Hand-made machines and drafters."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from magicdec.profiles.storage.drafter import Drafter
from magicdec.profiles.tuning.candidate import Candidate, Place
from magicdec.profiles.tuning.evidence import Evidence
from magicdec.profiles.tuning.pricing import Memory, StepPrice

ROOMY = Memory(1, 2)


def drafter(budget: int = 256, selector: str = "snapkv", weights: str = "same") -> Drafter:
    return Drafter(selector, (), budget, 0.0, weights)


def evidence(gamma: int, steps: Sequence[float], tokens: int = 60) -> Evidence:
    """Rows of so many tokens each; Ω follows from the steps."""
    length = tokens * len(steps) / sum(steps)
    return Evidence(gamma, (tokens,) * len(steps), tuple(steps), length)


class Machine:
    """Every step takes the same, however many rows take part; selections by the row."""

    def __init__(
        self, plain: float = 1.0, draft: float = 0.2, verify: float = 1.0, rest: float = 0.0,
        select: float = 0.0,
    ) -> None:  # fmt: skip
        self.price = StepPrice(plain, draft, verify, rest, select)

    def __call__(self, candidate: Candidate, place: Place) -> Sequence[StepPrice]:
        return [self.price] * place.batch


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """All of this module: test modules cannot import each other."""
    return SimpleNamespace(drafter=drafter, evidence=evidence, Machine=Machine, ROOMY=ROOMY)
