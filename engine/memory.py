"""What a run will need, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from magicdec.engine.config import MAX_GAMMA, DecodeConfig
from magicdec.engine.draft_memory import draft_need
from magicdec.engine.errors import OutOfMemoryError
from magicdec.engine.free_memory import Room, host_room
from magicdec.engine.model.spec import ModelSpec

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


def forecast(
    spec: ModelSpec,
    config: DecodeConfig,
    *,
    batch: int,
    context: int,
    chunk: int,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    device: torch.device,
    available: int,
    draft: ModelSpec | None = None,
) -> MemoryForecast:
    """For `batch` rows of up to `context` prompt tokens. draft: the model `config.draft` names."""
    size, scratch = dtype.itemsize, 4
    drafting = draft_need(
        spec, draft, config, batch=batch, context=context, capacity=capacity(config, context),
        dtype=dtype, kv_dtype=kv_dtype, device=device,
    )  # fmt: skip
    # Distributions (draft, target, residual, a float64 running sum) exist only when sampling.
    copies = (1 if config.sampling.greedy else 6) + 3 * config.sampling.penalises
    logits = batch * (config.most_drafted + 1) * spec.vocab_size * scratch * copies
    counts = batch * spec.vocab_size * 5 * config.sampling.penalises  # of `Penalties`
    width = 3 * spec.hidden_size + 3 * spec.intermediate_size + 4 * spec.heads * spec.head_dim
    chunk = min(chunk, context)
    prefill = chunk * width * scratch + 2 * chunk * spec.group * context * scratch
    return MemoryForecast(
        weights=spec.parameters * size,
        draft_weights=drafting.weights,
        full_kv=batch * capacity(config, context) * spec.kv_bytes_per_token(kv_dtype.itemsize),
        draft_kv=drafting.kv,
        workspace=logits + counts + prefill + drafting.queries + drafting.scores,
        available=available,
        index=drafting.index,
    )


def capacity(config: DecodeConfig, context: int) -> int:
    """Full-cache entries per row: the prompt, what it may gain, and a step's scratch.

    The scratch is for any γ, so that runs that differ in γ share one cache and its prefill, as do
    those with trees of no more nodes.
    """
    return context + config.max_new_tokens + max(MAX_GAMMA, config.scratch) + 1


def require_fit(
    spec: ModelSpec,
    config: DecodeConfig,
    *,
    batch: int,
    context: int,
    chunk: int,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    device: torch.device,
    available: int,
    draft: ModelSpec | None = None,
    source: str = "",
) -> MemoryForecast:
    """The forecast. Raises OutOfMemoryError, naming what would fit, when there is too little.

    source: what says how much is available.
    """

    def need(batch: int, context: int, new_tokens: int | None = None) -> MemoryForecast:
        changed = replace(config, max_new_tokens=new_tokens or config.max_new_tokens)
        return forecast(
            spec, changed, batch=batch, context=context, chunk=chunk, dtype=dtype,
            kv_dtype=kv_dtype, device=device, available=available, draft=draft,
        )  # fmt: skip

    wanted = need(batch, context)
    if wanted.total <= available:
        return wanted
    unit, name_of_unit = (GIB, "GiB") if wanted.total >= GIB else (MIB, "MiB")
    parts = ", ".join(f"{name} {size / unit:.1f}" for name, size in wanted.lines())
    largest = {
        "--batch": _largest(lambda b: need(b, context).total <= available, batch),
        "--context": _largest(lambda s: need(batch, s).total <= available, context),
        "--max-new-tokens": _largest(
            lambda n: need(batch, context, n).total <= available, config.max_new_tokens
        ),
    }
    advice = ", or ".join(f"{option} {most}" for option, most in largest.items() if most)
    raise OutOfMemoryError(
        f"batch {batch}, context {context} and {config.max_new_tokens} new tokens need "
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
