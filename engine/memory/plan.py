"""What a run will need, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from magicdec.engine.cache.kv import KEPT_QUERIES
from magicdec.engine.config import INNER_GAMMA, DecodeConfig
from magicdec.engine.drafters.base import draft_weights
from magicdec.engine.errors import OutOfMemoryError, require
from magicdec.engine.indexes.base import KeyShape
from magicdec.engine.memory.free import Room, host_room
from magicdec.engine.memory.run_shape import RunShape
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.selection import draft_selector
from magicdec.engine.selectors.base import DynamicSelector, KVSelector
from magicdec.engine.views.dynamic import block_size
from magicdec.engine.views.make import view_capacity


@dataclass(frozen=True, slots=True)
class DraftRoom:
    """Entries that a draft model's caches hold, for memory forecasts and for the caches."""

    prompt: int  # tokens of a prompt that the model sees, its last ones
    full: int  # of its full cache, per row of it
    full_rows: int  # all rows, or one that every prompt passes through on its way to the view
    view: int  # of the compact view, per row; 0: it shares the full cache
    scratch: int  # of either, the entries beyond the valid ones

    @classmethod
    def of(
        cls, spec: ModelSpec, selector: KVSelector, config: DecodeConfig, *, rows: int, context: int
    ) -> DraftRoom:
        """Raises ConfigError when new tokens alone fill the window that the model was trained for,
        and for a selector that needs the target's own queries.

        Of a longer prompt it sees the end, at positions from 0 on: inside the trained window it
        predicts well, beyond it it does not, and a draft need not know the whole context.
        """
        require(
            not (isinstance(selector, DynamicSelector) and selector.refresh),
            f"selector {config.selector} chooses with the queries of the model that verifies, and "
            f"draft {config.who.model} has others; use --draft self or another selector",
        )
        # A row that is almost full takes part in a round with as many tokens as its mates.
        scratch = config.gamma + (INNER_GAMMA if config.who.cascades else 1)
        growth = config.max_new_tokens + scratch - 1
        left = spec.trained_window - growth
        require(
            left >= 1,
            f"draft {config.who.model}: its trained window of {spec.trained_window} tokens has "
            f"no room beside {config.max_new_tokens} new ones; lower --max-new-tokens or choose "
            "another draft",
        )
        prompt = min(context, left)
        view = view_capacity(
            selector, budget=config.budget, context=prompt, growth=config.max_new_tokens,
            gamma=scratch,
        )  # fmt: skip
        if view:
            return cls(prompt, prompt, 1, view, scratch)
        return cls(prompt, prompt + growth + 1, rows, 0, scratch)


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


GIB, MIB = 2**30, 2**20


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Bytes by purpose, and what the device has free."""

    weights: int
    draft_weights: int
    full_kv: int
    draft_kv: int
    workspace: int
    available: int
    index: int = 0  # a dynamic selector's

    @property
    def total(self) -> int:
        return sum(size for _, size in self.lines())

    def lines(self) -> list[tuple[str, int]]:
        index = [("selector's index", self.index)] if self.index else []
        return [
            ("weights", self.weights),
            ("draft weights", self.draft_weights),
            ("full KV cache", self.full_kv),
            ("draft KV cache", self.draft_kv),
            *index,
            ("workspace", self.workspace),
        ]


def forecast(run: RunShape, available: int) -> MemoryForecast:
    """Bytes that the run will allocate, of `available` ones."""
    spec, config = run.spec, run.config
    drafting, scratch = draft_need(run), 4
    # Distributions (draft, target, residual, a float64 running sum) exist only when sampling.
    copies = (1 if config.sampling.greedy else 6) + 3 * config.sampling.penalises
    logits = run.batch * (config.most_drafted + 1) * spec.vocab_size * scratch * copies
    counts = run.batch * spec.vocab_size * 5 * config.sampling.penalises  # of `Penalties`
    width = 3 * spec.hidden_size + 3 * spec.intermediate_size + 4 * spec.heads * spec.head_dim
    chunk = min(run.chunk, run.context)
    prefill = chunk * width * scratch + 2 * chunk * spec.group * run.context * scratch
    return MemoryForecast(
        weights=spec.parameters * run.dtype.itemsize,
        draft_weights=drafting.weights,
        full_kv=run.batch * run.capacity * run.kv_bytes_per_token,
        draft_kv=drafting.kv,
        workspace=logits + counts + prefill + drafting.queries + drafting.scores,
        available=available,
        index=drafting.index,
    )


def require_fit(run: RunShape, available: int, source: str = "") -> MemoryForecast:
    """The forecast. Raises OutOfMemoryError, naming what would fit, when there is too little.

    source: what says how much is available.
    """

    def fits(**changes: int) -> bool:
        return forecast(replace(run, **changes), available).total <= available  # type: ignore[arg-type]

    def fits_gaining(new_tokens: int) -> bool:
        config = replace(run.config, max_new_tokens=new_tokens)
        return forecast(replace(run, config=config), available).total <= available

    wanted = forecast(run, available)
    if wanted.total <= available:
        return wanted
    unit, name_of_unit = (GIB, "GiB") if wanted.total >= GIB else (MIB, "MiB")
    parts = ", ".join(f"{name} {size / unit:.1f}" for name, size in wanted.lines())
    largest = {
        "--batch": _largest(lambda rows: fits(batch=rows), run.batch),
        "--context": _largest(lambda tokens: fits(context=tokens), run.context),
        "--max-new-tokens": _largest(fits_gaining, run.config.max_new_tokens),
    }
    advice = ", or ".join(f"{option} {most}" for option, most in largest.items() if most)
    raise OutOfMemoryError(
        f"batch {run.batch}, context {run.context} and {run.config.max_new_tokens} new tokens need "
        f"{wanted.total / unit:.1f} {name_of_unit} ({parts}), "
        f"{available / unit:.1f} {name_of_unit} is free"
        + (f" by {source}; " if source else "; ")
        + (f"largest that fits: {advice}" if advice else "not even one row fits: free some memory")
    )


def _largest(fits: Callable[[int], bool], bound: int) -> int:
    """The largest n in 0..bound for which the monotone `fits` holds; 0 for none."""
    low, high = 0, bound
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def available_memory(device: torch.device) -> int:
    """Free bytes on the device, see `memory_room`."""
    return memory_room(device).free


def memory_room(device: torch.device) -> Room:
    """What is free on the device, and by whose count."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Room(int(free), int(total), "the GPU's own count")
    return host_room(torch.get_num_threads())
