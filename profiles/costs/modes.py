"""Plain decoding, standard speculation and sparse self-speculation: what each leaves room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from magicdec.profiles.costs.grid import Axes, Setup
from magicdec.profiles.costs.memory import memory, usable_bytes
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.costs.speculation import Drafting


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to decode: drafting None is plain decoding."""

    name: str  # plain, standard, sparse_self or sparse_model
    drafting: Drafting | None


@dataclass(frozen=True, slots=True)
class Room:
    """A mode's memory at one context. Bytes on all devices together."""

    mode: Mode
    context: int
    gamma: int
    weights_bytes: float
    draft_weights_bytes: float
    full_kv_row_bytes: float
    draft_kv_row_bytes: float
    largest_batch: int


def modes(setup: Setup, budget: int | None, standard: ModelShape | None) -> list[Mode]:
    """What is compared: always plain and sparse self-speculation, the others where they exist.

    `standard` is the draft model of standard speculation, with its own full cache. A draft model
    with a sparse cache comes last.
    """
    found = [Mode("plain", None)]
    if standard is not None:
        found.append(Mode("standard", Drafting(budget=None, model=standard)))
    own = setup.with_budget(budget)
    if own.host is not None:
        return found
    if own.model is None:
        return [*found, Mode("sparse_self", own)]
    if budget is None:
        return found
    return [*found, Mode("sparse_self", Drafting(budget=budget)), Mode("sparse_model", own)]


def room(setup: Setup, axes: Axes, compared: Sequence[Mode]) -> list[Room]:
    """Every mode at every context, at the longest draft."""
    usable, gamma = usable_bytes(setup.hardware, setup.reserve), max(axes.gamma)
    by_mode = [_rooms(setup, mode, axes.context, gamma, usable) for mode in compared]
    return [found for at_context in zip(*by_mode, strict=True) for found in at_context]


def _rooms(
    setup: Setup, mode: Mode, contexts: Sequence[int], gamma: int, usable: float
) -> Iterator[Room]:
    kept = memory(
        setup.target, setup.hardware, mode.drafting, context=contexts, gamma=gamma,
        weight_bytes=setup.weight_bytes, kv_bytes=setup.kv_bytes,
    )  # fmt: skip
    per_context = (
        contexts, kept.full_kv_row.tolist(), kept.draft_kv_row.tolist(),
        kept.largest_batch(usable).tolist(),
    )  # fmt: skip
    for context, full, draft, rows in zip(*per_context, strict=True):
        yield Room(
            mode, context, gamma, kept.weights, kept.draft_weights, full, draft, int(rows)
        )  # fmt: skip
