"""A prediction as JSON-ready data, in full precision. What is not available is null, never 0."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from magicdec.profiles.costs.break_even import Outlook
from magicdec.profiles.costs.grid import ALL_BOUNDS, Grid, Setup
from magicdec.profiles.costs.modes import Room

PREDICT_SCHEMA = "magicdec.predict/1"
MILLISECONDS = {
    "plain": "plain_step_ms", "draft": "draft_step_ms", "select": "select_ms",
    "verify": "verify_ms", "accept": "accept_ms", "step": "spec_step_ms", "tpot": "tpot_ms",
}  # fmt: skip
BOUND_FIELDS = ("plain_bound", "draft_bound", "verify_bound")


def cells(grid: Grid) -> Iterator[dict[str, Any]]:
    """One flat record per cell; γ changes fastest, then budget, context and batch."""
    axes = grid.axes
    order = np.meshgrid(*(np.arange(size) for size in axes.shape), indexing="ij")
    columns: dict[str, list[Any]] = {
        "batch": _picked(axes.batch, order[0]),
        "context": _picked(axes.context, order[1]),
        "budget": _picked([budget_text(budget) for budget in axes.budget], order[2]),
        "gamma": _picked(axes.gamma, order[3]),
        "best_gamma": (order[3] == grid.best[..., None]).ravel().tolist(),
        "tokens_per_step": _floats(grid.omega),
    }
    for name, column in MILLISECONDS.items():
        columns[column] = _floats(getattr(grid, name) * 1e3)
    columns |= {
        "tokens_per_s": _floats(grid.tokens_per_s),
        "plain_tokens_per_s": _floats(np.broadcast_to(grid.plain_tokens_per_s, axes.shape)),
        "speedup": _floats(grid.speedup),
        **{name: _picked(ALL_BOUNDS, getattr(grid, name)) for name in BOUND_FIELDS},
        "break_even_length": _floats(grid.break_even_length),
        "required_alpha": _floats(grid.required_alpha),
        "weights_bytes": _wholes(grid.weights_bytes),
        "full_kv_bytes": _wholes(grid.full_kv_bytes),
        "draft_kv_bytes": _wholes(grid.draft_kv_bytes),
        "memory_bytes": _wholes(grid.memory_bytes),
        "fits": grid.fits.ravel().tolist(),
        "largest_batch": _wholes(grid.largest_batch),
    }
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def prediction_record(
    setup: Setup,
    grid: Grid,
    rooms: Sequence[Room],
    *,
    thresholds: Sequence[Outlook],
    notes: Sequence[str],
) -> dict[str, Any]:
    """The document of `predict --format json`."""
    hardware, drafting = setup.hardware, setup.drafting
    return {
        "schema": PREDICT_SCHEMA,
        "model": dataclasses.asdict(setup.target),
        "hardware": {"label": hardware.label} | _finite(dataclasses.asdict(hardware)),
        "draft": {
            "who": drafting.who,
            "model": None if drafting.model is None else dataclasses.asdict(drafting.model),
            "weights": drafting.weights,
            "weight_bytes": drafting.weight_bytes or setup.weight_bytes,
            "select_entries_per_token": drafting.select_per_token,
        },
        "acceptance": {
            "rates": list(setup.acceptance.rates),
            "every_position_alike": setup.acceptance.constant,
            "source": setup.acceptance.source,
        },
        "weight_bytes": setup.weight_bytes,
        "kv_bytes": setup.kv_bytes,
        "reserve": setup.reserve,
        "target_speedup": setup.target_speedup,
        "notes": list(notes),
        "thresholds": [
            dataclasses.asdict(found) | {"budget": budget_text(found.budget)}
            for found in thresholds
        ],
        "capacity": [room_record(room) for room in rooms],
        "cells": list(cells(grid)),
    }


def room_record(room: Room) -> dict[str, Any]:
    """One mode at one context; draft fields are null for plain decoding."""
    drafting = room.mode.drafting
    return {
        "mode": room.mode.name,
        "draft_model": drafting.model.name if drafting and drafting.model else None,
        "budget": budget_text(drafting.budget) if drafting else None,
        "context": room.context,
        "gamma": room.gamma if drafting else None,
        "weights_bytes": round(room.weights_bytes),
        "draft_weights_bytes": round(room.draft_weights_bytes) if drafting else None,
        "full_kv_row_bytes": round(room.full_kv_row_bytes),
        "draft_kv_row_bytes": round(room.draft_kv_row_bytes) if drafting else None,
        "largest_batch": room.largest_batch,
    }


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    """Without infinities, which JSON lacks: a link that is not counted is null."""
    return {
        key: _finite(value) if isinstance(value, dict)
        else None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in data.items()
    }  # fmt: skip


def budget_text(budget: int | None) -> int | str:
    """A budget as people write it: None is a full draft cache."""
    return "full" if budget is None else budget


def _picked(values: Sequence[Any], indices: NDArray[np.int64]) -> list[Any]:
    return [values[index] for index in indices.ravel().tolist()]


def _wholes(array: NDArray[np.float64]) -> list[int]:
    return np.rint(array).astype(np.int64).ravel().tolist()


def _floats(array: NDArray[np.float64]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in array.ravel().tolist()]
