"""What a calibration tells a γ policy or a tree: prices of steps. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from magicdec.engine.config import DecodeConfig
from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.gamma.auto import Auto
from magicdec.engine.gamma.lengths import lengths
from magicdec.engine.gamma.policy import MOST_CHOSEN, Adaptive, GammaPolicy
from magicdec.engine.request import Request
from magicdec.engine.trees.shape import ShapeSearch, TreeShape
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.predict.run import Work, assume, costs_at, full_step

GRAIN = 256  # tokens of context that are priced alike: a step must not wait for its price
#: What a threshold may be: below one half a draft of two sure tokens would be cut.
LEAST_STOP, MOST_STOP = 0.05, 0.9


@dataclass(frozen=True, slots=True)
class CalibratedPrices:
    """`engine.gamma.auto.Prices` of one run's drafter."""

    calibration: Calibration
    work: Work
    _known: dict[tuple[int, int, int], float] = field(default_factory=dict, compare=False)

    def step(self, rows: int, context: float, gamma: int) -> float:
        place = rows, round(context / GRAIN), gamma
        if place not in self._known:
            at = max(1, place[1]) * GRAIN
            found = costs_at(self.calibration, self.work, rows, at, gamma)
            self._known[place] = float(found.step(gamma))
        return self._known[place]

    def prepare(self, context: float) -> float:
        return self.calibration.selecting(self.work.drafter.chooser, context)


def adaptive_stop(calibration: Calibration, work: Work) -> float:
    """The share of a draft step in the time of a token, at the best fixed γ: a draft token that
    counts less often than that costs more than it brings. It includes what verifying it takes.
    """
    prices = CalibratedPrices(calibration, work)
    context = sum(work.contexts) / len(work.contexts)
    steps = [prices.step(work.batch, context, gamma) for gamma in range(MOST_CHOSEN + 1)]
    tokens = lengths([assume(calibration, work).mean] * MOST_CHOSEN)
    token_s = min(step / omega for step, omega in zip(steps, tokens, strict=True))
    one_more = (steps[-1] - steps[1]) / (MOST_CHOSEN - 1)
    return min(MOST_STOP, max(LEAST_STOP, one_more / token_s))


def adaptive(calibration: Calibration, work: Work) -> Adaptive:
    stop = round(adaptive_stop(calibration, work), 3)
    return Adaptive(stop, f"calibration of {calibration.created[:10]}")


def prepared(config: DecodeConfig, calibration: Calibration, work: Work) -> DecodeConfig:
    """The settings with `priced`, as far as calibrations time the drafter: the model itself over a
    selection. All others go by the run's own times."""
    if work.drafter.kind != "self" or work.drafter.budget is None:
        return config
    return replace(config, gamma_policy=priced(config.gamma_policy, calibration, work))


def priced(policy: GammaPolicy, calibration: Calibration, work: Work) -> GammaPolicy:
    """The policy with what a calibration says that knows the run's drafter: `adaptive` and `auto`
    go by it."""
    match policy:
        case Adaptive():
            return adaptive(calibration, work)
        case Auto():
            assumed = assume(calibration, work)
            day = calibration.created[:10]
            source = f"calibration of {day}, acceptance at first {assumed.source}"
            return Auto(CalibratedPrices(calibration, work), assumed.mean, source)
    return policy


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


def calibrated(
    config: DecodeConfig, calibration: Calibration, drafter: DraftSpec, gamma: int,
    requests: Sequence[Request], batch: int,
) -> DecodeConfig:  # fmt: skip
    """Of a run of `drafter` over those rows: γ policies get prices, Sequoia the shape that pays
    most."""
    work = Work.of(drafter, gamma, requests, batch, config.max_new_tokens)
    if config.tree == "sequoia":
        chosen = choose_tree(calibration, work, config.tree_rates, nodes=config.tree_nodes)
        return replace(config, tree_shape=chosen.shape.parents)
    return prepared(config, calibration, work)
