"""A way to draft as the cost model takes it: what runs, what it reads, what it searches."""

from __future__ import annotations

from dataclasses import dataclass

from magicdec.engine.draft_spec import DraftSpec
from magicdec.engine.selection import selector_of
from magicdec.engine.selectors.base import Search
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.speculation import Drafting, lookup_cost

WEIGHT_BYTES = {"int8": 1.0}


@dataclass(frozen=True, slots=True)
class PricedRow:
    """Tokens of a prompt, and how many a row has gained on average while it is decoded."""

    prompt: float
    growth: float


def drafting_of(
    drafter: DraftSpec, target: ModelShape, row: PricedRow, kv_bytes: float,
    model: ModelShape | None = None,
) -> Drafting:  # fmt: skip
    """model: the sizes of the draft model, where another model drafts."""
    if drafter.kind == "lookup":
        return Drafting(budget=None, host=lookup_cost())
    drafts = None
    if drafter.kind == "layers":
        drafts = target.first(layers_of(drafter, target))
    elif drafter.kind == "model":
        assert model is not None, "another model drafts, and its sizes are not known"
        drafts = model
    search = search_of(drafter, drafts or target, kv_bytes)
    budget = _read(drafter, row)
    if budget is None and drafts is not None and drafter.kind == "model":
        # Of a longer context it sees the end, see `DraftRoom`.
        budget = None if drafts.max_position >= row.prompt + row.growth else drafts.max_position
    return Drafting(
        budget=budget, model=drafts, weights=drafter.draft_weights,
        weight_bytes=WEIGHT_BYTES.get(drafter.draft_weights),
        select_per_token=search.per_draft, verify_per_token=search.per_verify,
        borrowed=drafter.kind == "layers", caught_up=int(drafter.kind == "model"),
    )  # fmt: skip


def layers_of(drafter: DraftSpec, target: ModelShape) -> int:
    """Of the target that draft, where its first ones do."""
    return min(drafter.who.layers or 0, target.layers)


def search_of(drafter: DraftSpec, shape: ModelShape, kv_bytes: float) -> Search:
    """What its selector reads to choose, of a model of that shape."""
    if drafter.budget is None:
        return Search()
    return selector_of(drafter).search(shape.head_dim, int(kv_bytes))


def _read(drafter: DraftSpec, row: PricedRow) -> int | None:
    """Entries of a draft step, None for all: accepted tokens come on top of the budget, unless the
    selector has them replace others."""
    if drafter.budget is None:
        return None
    kept = min(drafter.budget, row.prompt)
    replaces = selector_of(drafter).ring(drafter.budget) is not None
    return round(kept if replaces else kept + row.growth)
