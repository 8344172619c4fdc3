"""A grid of real runs that no calibration has seen, beside what it predicts for them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from magicdec.engine.config import DecodeConfig
from magicdec.engine.drafter import draft_weights
from magicdec.engine.errors import ConfigError
from magicdec.engine.events import StepFinished
from magicdec.engine.request import Request
from magicdec.engine.session import Session
from magicdec.profiles.bench.rows import Rows
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.costs.speculation import Drafting, step_costs

BATCHES, CONTEXTS, BUDGETS, GAMMAS = (1, 4, 8), (1000, 4000, 7000), (128, 512), (1, 2, 3, 4, 5)
NEW_TOKENS, SELECTOR = 24, "streaming"
NEITHER = (0.95, 1.05)  # measured speedups that are neither a gain nor a loss
Key = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: medians of a run's full steps, milliseconds, and what is predicted for them.

    Both speedups are with the run's own tokens per step. Selection, once a row, is in neither.
    """

    rows: int
    context: int
    budget: int
    gamma: int
    tokens_per_step: float
    plain_ms: float
    draft_ms: float  # of one draft step
    verify_ms: float
    step_ms: float
    plain_ms_predicted: float
    draft_ms_predicted: float
    verify_ms_predicted: float
    step_ms_predicted: float
    calibrated: str  # when

    @property
    def key(self) -> Key:
        return self.rows, self.context, self.budget, self.gamma

    @property
    def measured(self) -> float:
        return self.plain_ms * self.tokens_per_step / self.step_ms

    @property
    def predicted(self) -> float:
        return self.plain_ms_predicted * self.tokens_per_step / self.step_ms_predicted

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Errors:
    """Of predicted speedups."""

    median: float
    p90: float
    bias: float
    same_side: int
    judged: int  # cells measured as a gain or a loss


@dataclass(frozen=True, slots=True)
class _Steps:
    """Medians over full steps, seconds."""

    draft: float
    verify: float
    whole: float
    tokens: float  # a row gains per step


class Check:
    """Every run of drafts stands between two plain ones of the same rows."""

    def __init__(self, session: Session, document: str, calibration: Calibration) -> None:
        self._session, self._calibration = session, calibration
        self._rows = Rows(session, document, batch=max(BATCHES), context=max(CONTEXTS))

    def run(self, known: Set[Key], path: Path) -> Iterator[Cell]:
        """Measures the cells that are not `known`; appends each to `path` as it is done."""
        for context in sorted(CONTEXTS, reverse=True):
            for batch in BATCHES:
                requests = self._rows.requests(batch, context)
                for budget in BUDGETS:
                    cells = [(batch, context, budget, gamma) for gamma in GAMMAS]
                    for cell in self._measure(requests, [c for c in cells if c not in known]):
                        with path.open("a", encoding="utf-8") as lines:
                            lines.write(json.dumps(asdict(cell)) + "\n")
                        yield cell

    def _measure(self, requests: list[Request], keys: Sequence[Key]) -> Iterator[Cell]:
        if not keys:
            return
        before = self._steps(requests, 0, 1)
        for key in keys:
            *_, budget, gamma = key
            drafting = self._steps(requests, gamma, budget)
            after = self._steps(requests, 0, 1)
            yield self._cell(key, requests, (before.whole + after.whole) / 2, drafting)
            before = after

    def _steps(self, requests: list[Request], gamma: int, budget: int) -> _Steps:
        new = NEW_TOKENS if gamma else NEW_TOKENS // 2
        config = self._config(gamma, budget, new)
        full = [
            e for e in self._rows.events(requests, config)
            if isinstance(e, StepFinished) and e.gamma == gamma and len(e.rows) == len(requests)
        ]  # fmt: skip
        accepted = [row.accepted for step in full for row in step.rows]
        return _Steps(
            statistics.median(s.phases.draft for s in full) / max(1, gamma),
            statistics.median(s.phases.verify for s in full),
            statistics.median(s.phases.decode for s in full),
            1 + statistics.mean(accepted),
        )

    def _config(self, gamma: int, budget: int, new: int = NEW_TOKENS) -> DecodeConfig:
        return DecodeConfig(max_new_tokens=new, gamma=gamma, budget=budget, selector=SELECTOR)

    def _cell(self, key: Key, requests: list[Request], plain: float, steps: _Steps) -> Cell:
        rows, context, budget, gamma = key
        weights = draft_weights(
            self._config(gamma, budget), self._session.device, self._session.dtype
        )
        drafting = Drafting(
            budget=budget, weights=weights, weight_bytes=1.0 if weights == "int8" else None
        )
        costs = step_costs(
            self._calibration.model, self._calibration.hardware, drafting, rows=rows,
            context=statistics.mean(len(r.tokens) for r in requests) + NEW_TOKENS / 2,
            gamma=gamma, weight_bytes=self._calibration.weight_bytes,
            kv_bytes=self._calibration.kv_bytes,
        )  # fmt: skip
        return Cell(
            rows, context, budget, gamma, steps.tokens, 1e3 * plain, 1e3 * steps.draft,
            1e3 * steps.verify, 1e3 * steps.whole, 1e3 * float(costs.plain.total),
            1e3 * float(costs.draft.total), 1e3 * float(costs.verify.total),
            1e3 * float(costs.step(gamma)), self._calibration.created,
        )  # fmt: skip


def read_cells(path: Path) -> list[Cell]:
    """Cells of an earlier check; none when there is no file. Raises ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Cell(**json.loads(line)) for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: holds no cells of a check: {error}") from error


def summary(cells: Sequence[Cell]) -> Errors:
    errors = np.array([cell.error for cell in cells])
    sides = [
        (cell.predicted > 1) == (cell.measured > 1)
        for cell in cells
        if not NEITHER[0] <= cell.measured <= NEITHER[1]
    ]
    return Errors(
        float(np.median(np.abs(errors))), float(np.quantile(np.abs(errors), 0.9)),
        float(errors.mean()), sum(sides), len(sides),
    )  # fmt: skip
