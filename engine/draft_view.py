"""Which view of the cache a selector gives to a model that drafts for itself."""

from __future__ import annotations

from magicdec.engine.cache import KVCache
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.selectors.base import KVSelector
from magicdec.engine.views.base import DraftView, WholeView
from magicdec.engine.views.selected import SelectedView


def view_capacity(
    selector: KVSelector, *, budget: int, context: int, growth: int, gamma: int
) -> int:
    """Entries per row that a draft view allocates; 0 when it shares the full cache.

    context: the longest prompt; growth: the most tokens a row may gain; gamma: scratch entries.
    Raises ConfigError when the selector cannot work with the budget.
    """
    if selector.whole:
        return 0
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
) -> DraftView:
    """model: what will draft, where it has fewer layers than the cache."""
    if selector.whole:
        return WholeView(cache)
    capacity = view_capacity(selector, budget=budget, context=context, growth=growth, gamma=gamma)
    return SelectedView(cache, selector, budget=budget, capacity=capacity, model=model)
