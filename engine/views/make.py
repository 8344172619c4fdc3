"""Which view of the cache a selector gives to a model that drafts for itself."""

from __future__ import annotations

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.clock import Clock
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.selectors.base import DynamicSelector, KVSelector
from magicdec.engine.views.base import DraftView, WholeView
from magicdec.engine.views.compact import SelectedView
from magicdec.engine.views.dynamic import DynamicView
from magicdec.engine.views.refreshed import RefreshedView


def view_capacity(
    selector: KVSelector, *, budget: int, context: int, growth: int, gamma: int
) -> int:
    """Entries per row that a draft view allocates; 0 when it shares the full cache.

    context: the longest prompt; growth: the most tokens a row may gain; gamma: scratch entries.
    Raises ConfigError when the selector cannot work with the budget.
    """
    if selector.whole or (isinstance(selector, DynamicSelector) and not selector.refresh):
        return 0
    if isinstance(selector, DynamicSelector):
        added = min(growth, selector.refresh * (gamma + 1))  # until the next choice
        most = max(selector.most(budget), budget)  # a row within the budget has all its entries
        return min(most, context + growth) + added + gamma
    if selector.ring(budget) is None:
        return min(budget, context) + growth + gamma
    return min(budget, context + growth) + gamma


def make_view(
    cache: KVCache,
    selector: KVSelector,
    *,
    budget: int,
    context: int,
    growth: int,
    gamma: int,
    model: Decoder | None = None,
    clock: Clock | None = None,
) -> DraftView:
    """model: what will draft, where it has fewer layers than the cache; clock: what choosing in
    the middle of a step is charged to."""
    if selector.whole:
        return WholeView(cache)
    model, clock = model or cache.model, clock or Clock()
    if isinstance(selector, DynamicSelector) and not selector.refresh:
        return DynamicView(cache, selector, budget=budget, model=model, clock=clock)
    capacity = view_capacity(selector, budget=budget, context=context, growth=growth, gamma=gamma)
    if isinstance(selector, DynamicSelector):
        return RefreshedView(
            cache, selector, budget=budget, capacity=capacity, scratch=gamma, model=model,
            clock=clock,
        )  # fmt: skip
    return SelectedView(cache, selector, budget=budget, capacity=capacity, model=model)
