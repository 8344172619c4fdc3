"""The seam to the engine: all that the commands know of sessions and models.

Importing this module is cheap. The functions import torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast

from magicdec.cli.knobs import Settings
from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event
from magicdec.engine.report import RunReport
from magicdec.profiles.records import Losslessness

#: Called with what is being done and the done share of it, None when it cannot be known.
Progress = Callable[[str, float | None], None]


class Request(Protocol):
    """A row to decode."""

    @property
    def row(self) -> int: ...
    @property
    def document(self) -> str: ...
    @property
    def tokens(self) -> Sequence[int]: ...


class MemoryForecast(Protocol):
    def lines(self) -> list[tuple[str, int]]:
        """What needs memory, and how many bytes."""


class Session(Protocol):
    """A loaded model."""

    @property
    def warnings(self) -> Sequence[str]: ...

    def requests(
        self, sources: Sequence[str], *, context: int | None, take: str, prompt: str | None,
        raw: bool, batch: int, rows: str, on_progress: Progress,
    ) -> Sequence[Request]: ...  # fmt: skip

    def plan_memory(
        self, requests: Sequence[Request], config: DecodeConfig, batch: int
    ) -> MemoryForecast: ...

    def run(
        self, requests: Sequence[Request], config: DecodeConfig, *, batch: int
    ) -> Iterator[Event]: ...

    def check(self, plain: RunReport, speculative: RunReport) -> Losslessness: ...

    def environment(self) -> dict[str, object]: ...


class ModelInfo(Protocol):
    """An alias that can be pulled; `path` is where it lies once it was."""

    @property
    def alias(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def licence(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def parameters(self) -> int: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def size_bytes(self) -> int: ...


def open_session(settings: Settings, progress: Progress) -> Session:
    """Loads the model. Raises ModelError."""
    module = importlib.import_module("magicdec.engine.session")
    session = module.open_session(
        settings.model, device=settings.device, dtype=settings.dtype, threads=settings.threads,
        attention=settings.attention, chunk=settings.chunk, progress=progress,
    )  # fmt: skip
    return cast(Session, session)


def make_requests(
    session: Session, sources: Sequence[str], settings: Settings, progress: Progress
) -> Sequence[Request]:
    """Documents to rows. Raises ConfigError for a document that cannot be used."""
    return session.requests(
        list(sources), context=settings.context, take=settings.take, prompt=settings.prompt,
        raw=settings.raw, batch=settings.batch, rows=settings.rows, on_progress=progress,
    )  # fmt: skip


def list_models() -> list[ModelInfo]:
    module = importlib.import_module("magicdec.engine.loading.opening")
    return cast(list[ModelInfo], module.list_models())


def pull_model(alias: str, progress: Progress) -> Path:
    """Fetches a model into the user's cache. Raises ModelError."""
    module = importlib.import_module("magicdec.engine.loading.opening")
    return cast(Path, module.pull(alias, progress=progress))
