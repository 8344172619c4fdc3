"""Messages as JSON lines: for the pipe to the engine's process, and for recordings of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from magicdec.cli.output.live_state import RunInfo
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.process import messages
from magicdec.engine import events
from magicdec.engine.compare.verdict import Divergence, Losslessness
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.machine.steadiness import Steadiness

KIND = "_"  # the key that names a dataclass

_CLASSES: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        messages.Open, messages.Run, messages.Stop, messages.Loading, messages.Ready,
        messages.Failed, messages.RunBegan, messages.PassBegan, messages.Happened,
        messages.Checking, messages.RunEnded, messages.Tune, messages.TuneStep, messages.Learned,
        messages.TuneEnded, messages.Gone, Settings, RunInfo, ModelShape,
        Losslessness, Divergence, Steadiness, events.PhaseTimes, events.Loaded,
        events.PrefillProgress, events.RowStarted, events.RowStep, events.StepFinished,
        events.RowFinished, events.RunFinished, events.GammaChosen, events.InnerDrafts,
        events.TreeShare,
    )
}  # fmt: skip


def encode(message: object) -> bytes:
    """One line. Only the dataclasses above, plain values, sequences and mappings of them."""
    return json.dumps(to_json(message), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes | str) -> Any:
    """The message that `encode` wrote; sequences come back as tuples. Raises ValueError."""
    return from_json(json.loads(line))


def to_json(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        assert kind in _CLASSES, f"{kind} is not a message"
        return {KIND: kind} | {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(from_json(item) for item in value)
    if not isinstance(value, dict):
        return value
    items = {key: from_json(item) for key, item in value.items()}
    kind = items.pop(KIND, None)
    if kind is None:
        return items
    try:
        return _CLASSES[kind](**items)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a message of this version: {error}") from None
