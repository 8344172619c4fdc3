"""A calibration as data: constants of this machine and model. Torch-free.

A calibration holds for one fingerprint: model, precisions, device, threads, kernels and versions.
Under another one it is stale: it is never used without saying what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from magicdec.profiles.costs.hardware import Hardware
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.files.typed import MOST, Amount, Count, Name, Share

#: What a fingerprint holds, with the words that name it in messages.
FINGERPRINT = {
    "model": "model", "identity": "weights", "parameters": "parameters", "dtype": "dtype",
    "kv_dtype": "KV dtype", "device": "device", "device_name": "processor", "machine": "machine",
    "threads": "threads", "attention": "attention", "magicdec": "magicdec", "torch": "torch",
}  # fmt: skip
#: Of these, what files of earlier versions lack.
LATER = ("identity", "machine")

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}  # of an element of a dtype

Fingerprint = Mapping[str, Name | Annotated[int, Meta(ge=1, le=2**53)]]


def fingerprint_of(environment: Mapping[str, object]) -> Fingerprint:
    """The part of a session's environment that the times depend on."""
    found = {key: environment[key] for key in FINGERPRINT if key in environment}
    return {key: value if isinstance(value, int) else str(value) for key, value in found.items()}


def brief(key: str, value: object) -> str:
    """A part of a fingerprint for a message: of an identity its beginning."""
    return str(value)[:8] if key == "identity" else str(value)


@dataclass(frozen=True, slots=True)
class Selection:
    """What choosing and copying one row's entries takes, once: fixed_s + token_s · S."""

    selector: Name
    fixed_s: Amount
    token_s: Amount

    def seconds(self, context: float) -> float:
        return self.fixed_s + self.token_s * context


@dataclass(frozen=True, slots=True)
class Accepted:
    """Acceptance seen in real steps. `rates` are conditional: of the draft tokens at position i
    before which all were accepted, the share that was accepted too."""

    selector: Name
    budget: Count
    weights: Name  # that drafted
    drafted: Count  # tokens the rates were counted from
    rates: Annotated[tuple[Share, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class Residuals:
    """How far measured passes of one kind lie from the fit: of |predicted ÷ measured − 1|."""

    kind: Name
    passes: Count
    median: Amount
    p90: Amount
    bias: Annotated[float, Meta(ge=-1, le=MOST)]


@dataclass(frozen=True, slots=True)
class Calibration:
    created: Name  # ISO date and time, UTC
    fingerprint: Fingerprint
    model: ModelShape
    hardware: Hardware
    selections: tuple[Selection, ...] = ()
    acceptances: tuple[Accepted, ...] = ()
    residuals: tuple[Residuals, ...] = ()

    @property
    def weight_bytes(self) -> float:
        return BYTES[str(self.fingerprint["dtype"])]

    @property
    def kv_bytes(self) -> float:
        return BYTES[str(self.fingerprint["kv_dtype"])]

    def stale_because(self, current: Fingerprint) -> str:
        """What differs, "threads 2 → 4, torch 2.12 → 2.13"; empty when it holds for `current`.

        Only what both know is compared, so that a caller need not load torch to ask.
        """
        return ", ".join(
            f"{words} {brief(key, self.fingerprint[key])} → {brief(key, current[key])}"
            for key, words in FINGERPRINT.items()
            if key in current and key in self.fingerprint and current[key] != self.fingerprint[key]
        )

    @property
    def unnamed(self) -> str:
        """What a file of an earlier version does not name, in words; empty when it names all."""
        return " or ".join(FINGERPRINT[key] for key in LATER if key not in self.fingerprint)

    def selection(self, selector: str) -> Selection | None:
        return next((s for s in self.selections if s.selector == selector), None)

    def selecting(self, selector: str | None, context: float) -> float:
        """Seconds of one row's selection, before its first step; 0 where nothing is left out, and
        where it was not measured."""
        known = None if selector is None else self.selection(selector)
        return 0.0 if known is None else known.seconds(context)

    def acceptance(self, selector: str, budget: int, weights: str) -> Accepted | None:
        """Of the same selector and weights, at the nearest budget that was measured."""
        fitting = [a for a in self.acceptances if (a.selector, a.weights) == (selector, weights)]
        return min(fitting, key=lambda a: abs(a.budget - budget), default=None)
