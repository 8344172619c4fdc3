"""What a measurement depends on besides its cell, its model, its machine and its documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from magicdec.profiles.recorded.header import Header, Scalar

#: Settings that a profile holds elsewhere, or that change no figure. Whatever is added to a run's
#: settings counts unless it is named here.
ELSEWHERE = frozenset((
    "model", "device", "dtype", "kv_dtype", "attention", "threads", "chunk", "sync_phases",
    "prefill_cache", "prefill_cache_size", "context", "batch", "gamma", "gamma_policy", "tree",
    "tree_nodes", "tree_rates", "draft", "draft_kv", "selector", "selector_option", "budget",
    "draft_weights", "max_new_tokens", "temperature",
))  # fmt: skip
#: What runs of versions without these settings did.
BEFORE: dict[str, Scalar] = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "stop_token": None,
}
TEXTS = ("prompt", "stop")  # a user's words: they are told apart, not kept


def conditions_of(
    settings: Mapping[str, Any], tree_rates: Sequence[float] | None = None
) -> dict[str, Scalar]:
    """By name, those of a run's settings that its rows and texts follow from."""
    found = {
        name: _told_apart(name, value) for name, value in settings.items() if name not in ELSEWHERE
    }
    if "seed" in found:
        found["seed"] = found["seed"] or 0  # none is 0
    if tree_rates is not None:
        found["tree_rates"] = ",".join(f"{rate:g}" for rate in tree_rates)
    return found


def different(before: Header, now: Header) -> str:
    """The conditions that both know and that are not alike, "take head, now tail"."""
    mine, theirs = (BEFORE | dict(header.conditions) for header in (before, now))
    return ", ".join(
        f"{name.replace('_', '-')} {_said(mine[name])}, now {_said(theirs[name])}"
        for name in mine
        if name in theirs and mine[name] != theirs[name]
    )


def _told_apart(name: str, value: Any) -> Scalar:
    if isinstance(value, list | tuple | dict):
        value = json.dumps(value) if value else None
    if name in TEXTS and value is not None:
        return f"sha256:{hashlib.sha256(str(value).encode(errors='replace')).hexdigest()[:16]}"
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _said(value: Scalar) -> str:
    text = "none" if value is None else str(value).lower() if isinstance(value, bool) else value
    return f"{text:.15}" if isinstance(text, str) else f"{text:g}"
