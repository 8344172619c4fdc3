"""Two profiles, cell by cell: which differences are more than noise.

Figures are medians over the repeats, as everywhere; they are tested by Welch's t-test on the
logarithms of the raw samples. Each of m cells gets a chance to differ by accident, so p is adjusted
over the cells of a figure (Holm 1979): the chance of one false alarm in the whole comparison stays
below LEVEL.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from magicdec.profiles.calibration.calibration import FINGERPRINT, LATER, brief
from magicdec.profiles.recorded.conditions import different
from magicdec.profiles.recorded.schema import Cell, CellKey, Profile, Repeat

LEVEL = 0.05
FIGURES: Mapping[str, Callable[[Repeat], float | None]] = {
    "tokens_per_s": lambda repeat: repeat.speculative.tokens_per_s,
    "speedup": lambda repeat: repeat.speedup,
}
Verdict = Literal["faster", "slower", "within noise", "not testable", "not measured"]


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in A and B; `ratio` is B over A. `p` is None where it cannot be tested.

    agree: whether the means, which p is of, differ to the same side as the medians shown here.
    """

    figure: str
    a: float | None
    b: float | None
    repeats: tuple[int, int]
    p: float | None
    agree: bool = True

    @property
    def ratio(self) -> float | None:
        return self.b / self.a if self.a and self.b else None

    @property
    def verdict(self) -> Verdict:
        if self.ratio is None:
            return "not measured"
        if self.p is None:
            return "not testable"
        if self.p >= LEVEL or not self.agree:
            return "within noise"
        return "slower" if self.ratio < 1 else "faster"

    def regressed(self, threshold: float) -> bool:
        """Significantly slower, and by more than `threshold` of A."""
        return self.verdict == "slower" and (self.ratio or 1) < 1 - threshold


@dataclass(frozen=True, slots=True)
class Pair:
    """A setting that both profiles measured."""

    key: CellKey
    changes: tuple[Change, ...]  # one for each of FIGURES
    broken: str | None = None  # what worked in A and does not in B


@dataclass(frozen=True, slots=True)
class Comparison:
    pairs: tuple[Pair, ...]
    only_a: tuple[CellKey, ...]
    only_b: tuple[CellKey, ...]
    differences: tuple[str, ...]  # of machine, model and workload

    def overall(self, figure: str) -> float | None:
        """Geometric mean of B over A, over the cells that have both."""
        ratios = [c.ratio for pair in self.pairs for c in pair.changes if c.figure == figure]
        logs = [math.log(ratio) for ratio in ratios if ratio]
        return math.exp(statistics.mean(logs)) if logs else None

    def regressions(self, threshold: float, figures: Sequence[str]) -> list[str]:
        """What a gate should stop for, one line each."""
        found = []
        for pair in self.pairs:
            if pair.broken is not None:
                found.append(f"{pair.key.label}: {pair.broken}")
            found += [
                f"{pair.key.label}: {change.figure} {change.ratio:.3f} of A, p {change.p:.2g}"
                for change in pair.changes
                if change.figure in figures and change.regressed(threshold)
            ]
        return found


def compare(a: Profile, b: Profile) -> Comparison:
    cells_a = {cell.key: cell for cell in a.cells}
    cells_b = {cell.key: cell for cell in b.cells}
    both = sorted(cells_a.keys() & cells_b.keys())
    raw = [
        [_change(name, of, cells_a[key], cells_b[key]) for key in both]
        for name, of in FIGURES.items()
    ]
    adjusted = [_adjusted(changes) for changes in raw]
    pairs = tuple(
        Pair(key, tuple(changes[i] for changes in adjusted), _broken(cells_a[key], cells_b[key]))
        for i, key in enumerate(both)
    )
    return Comparison(
        pairs,
        tuple(sorted(cells_a.keys() - cells_b.keys())),
        tuple(sorted(cells_b.keys() - cells_a.keys())),
        tuple(_differences(a, b)),
    )


def welch(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p that samples of unequal variance have one mean (Welch 1947).

    None with fewer than two samples on a side, or without any spread: then nothing can be said.
    """
    if min(len(a), len(b)) < 2:
        return None
    part_a, part_b = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    error = part_a + part_b
    if error <= 0:
        return None
    from scipy.special import stdtr  # a tenth of a second; scipy.stats takes one

    t = (statistics.mean(a) - statistics.mean(b)) / math.sqrt(error)
    freedom = error**2 / (part_a**2 / (len(a) - 1) + part_b**2 / (len(b) - 1))
    return float(2 * stdtr(freedom, -abs(t)))


def holm(values: Sequence[float]) -> list[float]:
    """p values adjusted for their number."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, least = [0.0] * len(values), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, values[i] * (len(values) - rank)))
        adjusted[i] = least
    return adjusted


def _change(figure: str, of: Callable[[Repeat], float | None], a: Cell, b: Cell) -> Change:
    found_a, found_b = ([v for v in cell.samples(of) if v > 0] for cell in (a, b))
    median_a, median_b = (statistics.median(v) if v else None for v in (found_a, found_b))
    logs_a, logs_b = (list(map(math.log, values)) for values in (found_a, found_b))
    agree = True
    if median_a and median_b:
        agree = (median_b - median_a) * (statistics.mean(logs_b) - statistics.mean(logs_a)) > 0
    repeats = len(found_a), len(found_b)
    return Change(figure, median_a, median_b, repeats, welch(logs_a, logs_b), agree)


def _adjusted(changes: Sequence[Change]) -> list[Change]:
    tested = [(i, change.p) for i, change in enumerate(changes) if change.p is not None]
    result = list(changes)
    for (i, _), p in zip(tested, holm([p for _, p in tested]), strict=True):
        result[i] = replace(changes[i], p=p)
    return result


def _broken(a: Cell, b: Cell) -> str | None:
    if a.status == "ok" and b.status == "failed":
        return f"failed in B: {b.error or 'no reason given'}"
    if a.lossless.ok and b.lossless.ok is False:
        return "lossless in A, not in B"
    return None


HEADED = ("model", "dtype", "kv_dtype")  # members of a header, which its environment repeats


def _differences(a: Profile, b: Profile) -> list[str]:
    """Everything that makes two profiles hard to compare, by name."""
    left, right = a.header, b.header
    env_a, env_b = left.environment, right.environment
    found = [
        f"{FINGERPRINT.get(name, name) if name in LATER else name}: "
        f"{brief(name, env_a.get(name, 'unknown'))} and {brief(name, env_b.get(name, 'unknown'))}"
        for name in sorted({*env_a, *env_b} - {*HEADED})
        if env_a.get(name) != env_b.get(name)
    ]
    for name in ("tool", *HEADED, "max_new_tokens"):
        before, after = getattr(left, name), getattr(right, name)
        if before != after:
            found.append(f"{name}: {before} and {after}")
    if other := different(left, right):
        found.append(f"settings: {other.replace(', now ', ' and ')}")
    if left.documents != right.documents:
        found.append("documents: other names, token counts or contents")
    drafts = [
        {c.key.draft: c.draft_identity for c in profile.cells if c.draft_identity is not None}
        for profile in (a, b)
    ]
    found += [
        f"weights of the draft model {name}: {identity[:8]} and {drafts[1][name][:8]}"
        for name, identity in drafts[0].items()
        if drafts[1].get(name, identity) != identity
    ]
    return found
