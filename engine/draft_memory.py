"""What drafting adds to a run's memory: weights, KV caches, search structures, queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from magicdec.engine.cache import KEPT_QUERIES
from magicdec.engine.draft_room import DraftRoom
from magicdec.engine.draft_view import view_capacity
from magicdec.engine.drafter import draft_weights
from magicdec.engine.key_index import KeyShape
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.run_shape import RunShape
from magicdec.engine.selection import draft_selector
from magicdec.engine.selectors.base import DynamicSelector
from magicdec.engine.views.dynamic import block_size


@dataclass(frozen=True, slots=True)
class DraftNeed:
    """Bytes by purpose."""

    weights: int = 0
    kv: int = 0
    queries: int = 0  # of the prompts' ends, kept for selectors
    index: int = 0  # what a dynamic selector keeps about the keys: pages, codes, codebooks
    scores: int = 0  # of all entries of a layer, while it chooses


def draft_need(run: RunShape) -> DraftNeed:
    """Follows `drafting.make_drafter`."""
    target, draft, config, context = run.spec, run.draft, run.config, run.context
    batch, capacity, size = run.batch, run.capacity, run.dtype.itemsize
    kept = batch * min(KEPT_QUERIES, context) * query_bytes(target, size)  # whatever drafts
    if not config.reads_cache:
        return DraftNeed(queries=kept)
    selector = draft_selector(config)
    int8 = draft_weights(config, run.device, run.dtype) == "int8"
    observed = min(max(KEPT_QUERIES, selector.observed), context)
    need, spec, kv_size = DraftNeed(queries=kept), target, run.kv_dtype.itemsize
    if draft is not None:
        spec = draft
        room = DraftRoom.of(draft, selector, config, rows=batch, context=context)
        need = DraftNeed(
            draft.parameters * size + _twin(draft, int8),
            (room.full_rows * room.full + batch * room.view) * draft.kv_bytes_per_token(kv_size),
            kept + room.full_rows * observed * query_bytes(draft, size),
        )
        capacity = room.full
    if draft is None or config.who.cascades:  # the target's own layers draft, too
        spec, layers = target, config.who.layers
        if layers is not None and not config.who.cascades:
            spec = replace(target, layers=layers, windows=target.windows[:layers])
        entries = view_capacity(
            selector, budget=config.budget, context=context, growth=config.max_new_tokens,
            gamma=config.scratch,
        )  # fmt: skip
        need = replace(
            need,
            weights=need.weights + _twin(spec, int8),
            kv=need.kv + batch * entries * spec.kv_bytes_per_token(kv_size),
            queries=need.queries - kept + batch * observed * query_bytes(target, size),
        )
    if not isinstance(selector, DynamicSelector):
        return need
    keys = KeyShape(
        spec.layers,
        batch,
        spec.kv_heads,
        capacity,
        spec.head_dim,
        run.kv_dtype,
        torch.device("meta"),
    )  # fmt: skip
    block = 0 if selector.refresh else block_size(selector, capacity, config.budget, config.gamma)
    return replace(
        need,
        kv=need.kv + batch * block * spec.kv_bytes_per_token(kv_size) // spec.layers,
        index=selector.index(keys).nbytes,
        scores=2 * batch * spec.heads * capacity * 4,
    )


def _twin(spec: ModelSpec, int8: bool) -> int:
    """Bytes of int8 weights: all but the embedding, a byte each."""
    return spec.parameters - spec.vocab_size * spec.hidden_size if int8 else 0


def query_bytes(spec: ModelSpec, size: int) -> int:
    """Bytes of one token's queries over all layers."""
    return spec.layers * spec.heads * spec.head_dim * size
