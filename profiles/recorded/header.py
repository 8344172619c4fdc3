"""The first line of a profile: where and on what its cells were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Source:
    """A document of the workload: its name without folders, never its text."""

    name: str
    tokens: int | None = None
    sha256: str | None = None  # of the text, so that two profiles can be known to share it


@dataclass(frozen=True, slots=True)
class Grid:
    """What a sweep set out to measure. A cell of it may be missing: not yet run."""

    batch: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
    selector: tuple[str, ...] = ()
    budget: tuple[int, ...] = ()
    gamma: tuple[int, ...] = ()
    temperature: tuple[float, ...] = ()
    draft_weights: tuple[str, ...] = ()
    draft: tuple[str, ...] = ()
    draft_kv: tuple[str, ...] = ()
    tree: tuple[str, ...] = ()
    gamma_policy: tuple[str, ...] = ()  # each with the most that it drafts among `gamma`


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Where and on what the cells were measured."""

    created: str  # ISO 8601, UTC
    tool: str  # version of magicdec
    environment: Mapping[str, Scalar]  # device, threads, versions
    model: str
    dtype: str
    kv_dtype: str
    documents: tuple[Source, ...]
    max_new_tokens: int | None = None
    #: What else rows and texts follow from: how documents become rows, how tokens are chosen.
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    grid: Grid = field(default_factory=Grid)

    @property
    def identity(self) -> str | None:
        """The model's, whatever its name; None in files of earlier versions."""
        found = self.environment.get("identity")
        return None if found is None else str(found)
