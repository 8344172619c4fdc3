"""What the app and the engine's process tell each other: frozen data, see wire.py for its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from magicdec.cli.output.live_state import RunInfo
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.events import Event
from magicdec.profiles.costs.model import ModelShape
from magicdec.profiles.machine.steadiness import Steadiness


@dataclass(frozen=True, slots=True)
class Open:
    """Read these documents and load this model; the answer is Ready or Failed."""

    sources: tuple[str, ...]
    settings: Settings


@dataclass(frozen=True, slots=True)
class Run:
    """Decode with these settings. `again`: measure plain decoding anew, whatever is known."""

    run: int
    settings: Settings
    again: bool = False


@dataclass(frozen=True, slots=True)
class Tune:
    """Find what is best for the documents at this batch and context; `run` counts down from -1, so
    that a Stop names either kind."""

    run: int
    settings: Settings
    selectors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End this run at its next event; one that has not begun will not."""

    run: int


Command = Open | Run | Tune | Stop


@dataclass(frozen=True, slots=True)
class Loading:
    what: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded. `memory_bytes` is what it and its runs may take together."""

    environment: Mapping[str, object]
    shape: ModelShape
    memory_bytes: int
    int8: bool  # whether int8 weights can draft here


@dataclass(frozen=True, slots=True)
class Failed:
    """The model or the documents could not be opened."""

    error: str


@dataclass(frozen=True, slots=True)
class RunBegan:
    """`plain_run` is the run whose plain decoding this one is compared with, itself included.
    notes: how trees are shaped and γ is chosen, for the log."""

    run: int
    settings: Settings
    info: RunInfo
    environment: Mapping[str, object]
    memory: tuple[tuple[str, int], ...] = ()
    plain_run: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassBegan:
    """A pass over the rows starts, live_state.PLAIN or SPECULATIVE."""

    run: int
    title: str


@dataclass(frozen=True, slots=True)
class Happened:
    """`rejected`: by row, what the draft said where the target said something else."""

    run: int
    event: Event
    rejected: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Checking:
    """The tokens of both passes are compared."""

    run: int


@dataclass(frozen=True, slots=True)
class RunEnded:
    """`steadiness`: of the machine while a finished run and its plain decoding were measured."""

    run: int
    status: Literal["finished", "stopped", "failed"]
    error: str | None = None
    lossless: Losslessness | None = None
    warnings: tuple[str, ...] = field(default=())
    steadiness: Steadiness | None = None


@dataclass(frozen=True, slots=True)
class TuneStep:
    """What a tuning is about."""

    run: int
    what: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """Acceptance that a tuning has seen: of the steps that drafted position i, the share of those
    that accepted it."""

    settings: Settings
    weights: str
    per_position: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TuneEnded:
    """answer: the settings to use; None where nothing is known. profile: its real runs, as lines
    of a profile's file; empty without any."""

    run: int
    status: Literal["finished", "stopped", "failed"]
    error: str | None = None
    answer: Settings | None = None
    headline: str = ""
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    learned: tuple[Learned, ...] = ()
    profile: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gone:
    """The engine's process ended by itself."""

    error: str


Report = (
    Loading | Ready | Failed | RunBegan | PassBegan | Happened | Checking | RunEnded | TuneStep
    | TuneEnded | Gone
)  # fmt: skip
