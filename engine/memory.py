"""What a run will need, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from magicdec.engine.draft_memory import draft_need
from magicdec.engine.errors import OutOfMemoryError
from magicdec.engine.free_memory import Room, host_room
from magicdec.engine.run_shape import RunShape

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
