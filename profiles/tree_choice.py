"""Which tree to draft here: the shape with the least predicted time per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from magicdec.engine.trees.shape import ShapeSearch, TreeShape
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.run_prediction import Work, full_step


@dataclass(frozen=True, slots=True)
class TreeChoice:
    shape: TreeShape
    tokens: float  # expected per step, Ω
    speedup: float  # of such a step over plain decoding


def choose_tree(
    calibration: Calibration, work: Work, rates: Sequence[float], *, nodes: int
) -> TreeChoice:
    """Of at most `nodes` nodes and γ generations (Sequoia, arXiv 2402.12374, section 4.3).

    rates: p[k], see `ShapeSearch`. A draft pass is priced as one over a single node.
    """
    search = ShapeSearch(rates, nodes=nodes, depth=work.gamma)
    costs = [full_step(calibration, replace(work, gamma=size)) for size in range(nodes + 1)]
    draft = float(costs[0].draft)
    verify = [float(cost.verify + cost.rest) for cost in costs]
    shape = search.cheapest(draft, verify)
    size, height = len(shape.parents), shape.height
    tokens = search.tokens(size, height)
    seconds = height * draft + verify[size]
    return TreeChoice(shape, tokens, float(costs[0].plain) * tokens / seconds)
