"""The seam to the engine: all that the commands know of documents, sessions and models.

Importing this module is cheap; what imports torch is imported where it is used.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from magicdec.cli.knobs import Settings
from magicdec.engine.config import DecodeConfig
from magicdec.engine.events import Event
from magicdec.engine.report import RunReport
from magicdec.profiles.records import Losslessness

if TYPE_CHECKING:
    from magicdec.engine.loading.aliases import ModelInfo
    from magicdec.engine.session import Session as EngineSession
    from magicdec.engine.text.documents import Document

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


class Session(Protocol):
    """An opened model with documents to continue, as a run needs it."""

    def environment(self) -> dict[str, object]: ...
    def requests(self) -> Sequence[Request]:
        """Documents to rows. Raises ConfigError for a document that cannot be used."""

    def warnings(self) -> list[str]: ...
    def memory(self) -> list[tuple[str, int]]:
        """What needs memory, and bytes. Raises OutOfMemoryError when the run does not fit."""

    def run(self, config: DecodeConfig) -> Iterator[Event]: ...
    def check(self, plain: RunReport, speculative: RunReport) -> Losslessness: ...


class OpenedSession:
    """The real Session: an engine session with what this run asks of it."""

    def __init__(
        self, session: EngineSession, documents: Sequence[Document], settings: Settings,
        progress: Progress,
    ) -> None:  # fmt: skip
        self._session, self._documents = session, documents
        self._settings, self._config = settings, settings.decode_config()
        self._progress = progress

    def requests(self) -> Sequence[Request]:
        from magicdec.engine.text.rows import build_rows

        wanted = self._settings
        self._requests = build_rows(
            self._documents, self._session.tokenizer, context=wanted.context, batch=wanted.batch,
            take=wanted.take, rows=wanted.rows, prompt=wanted.prompt, raw=wanted.raw,
            progress=lambda name, done, total: self._progress(
                f"tokenising {name}", done / total if total else None
            ),
        )  # fmt: skip
        return self._requests

    def warnings(self) -> list[str]:
        found = [warning for document in self._documents for warning in document.warnings]
        return found + self._session.warnings(self._requests, self._config)

    def memory(self) -> list[tuple[str, int]]:
        plan = self._session.plan_memory(self._requests, self._config, self._settings.batch)
        return plan.lines()

    def run(self, config: DecodeConfig) -> Iterator[Event]:
        return self._session.run(self._requests, config, batch=self._settings.batch)

    def check(self, plain: RunReport, speculative: RunReport) -> Losslessness:
        return self._session.check(
            self._requests, self._config, _outputs(plain), _outputs(speculative)
        )

    def environment(self) -> dict[str, object]:
        import torch

        from magicdec.engine.drafter import draft_weights

        session = self._session
        return {
            "magicdec": version("magicdec"),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "platform": platform.platform(terse=True),
            "device": session.device.type,
            "device_name": _device_name(session.device),
            "dtype": str(session.dtype).removeprefix("torch."),
            "kv_dtype": str(session.kv_dtype).removeprefix("torch."),
            "draft_weights": draft_weights(self._config, session.device, session.dtype),
            "attention": session.backend.name,
            "threads": torch.get_num_threads(),
        }


def open_session(sources: Sequence[str], settings: Settings, progress: Progress) -> Session:
    """Reads the documents, then opens the model. Raises ConfigError, ModelError."""
    from magicdec.engine.text.documents import read_documents

    documents = read_documents(sources)  # before torch: a misspelt name shows at once
    progress(f"opening {settings.model}", None)
    from magicdec.engine.session import open_session as open_engine_session

    session = open_engine_session(
        settings.model, device=settings.device, dtype=settings.dtype, kv_dtype=settings.kv_dtype,
        threads=settings.threads, attention=settings.attention, chunk=settings.chunk,
        progress=progress,
    )  # fmt: skip
    return OpenedSession(session, documents, settings, progress)


def list_models() -> Sequence[ModelInfo]:
    """The models that have an alias."""
    from magicdec.engine.loading import aliases

    return aliases.list_models()


def pull_model(alias: str, progress: Progress) -> Path:
    """Fetches a model into the user's cache. Raises ModelError."""
    from magicdec.engine.loading import aliases

    return aliases.pull(alias, progress)


def _outputs(report: RunReport) -> list[tuple[int, ...]]:
    return [row.token_ids for row in report.rows]


def _device_name(device: object) -> str:
    import torch

    if str(device).startswith("cuda"):
        return torch.cuda.get_device_name(str(device))
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
