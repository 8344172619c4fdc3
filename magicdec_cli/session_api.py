"""The seam to the engine: all that the commands know of documents, sessions and models.

Importing this module is cheap; what imports torch is imported where it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from magicdec.cli import interrupts
from magicdec.cli.settings.knobs import Settings
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import MagicdecError
from magicdec.engine.events import Event
from magicdec.engine.report import RunReport
from magicdec.engine.request import Request
from magicdec.engine.text.documents import digests

if TYPE_CHECKING:
    from magicdec.cli.tune.session import TuneOutcome
    from magicdec.engine.loading.aliases import ModelInfo
    from magicdec.engine.session import Session as EngineSession
    from magicdec.engine.text.documents import Document
    from magicdec.engine.text.ruler.workload import Workload
    from magicdec.profiles.costs.model import ModelShape
    from magicdec.profiles.tuning.verifying import Watch

#: Called with what is being done and the done share of it, None when it cannot be known.
Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Facts:
    """What predictions need to know of an opened model and its device."""

    shape: ModelShape
    memory_bytes: int  # that the model and its runs may take together
    int8: bool  # whether int8 weights can draft here


class Session(Protocol):
    """An opened model with documents to continue, as a run needs it."""

    def environment(self) -> dict[str, object]: ...
    def requests(self) -> Sequence[Request]:
        """Documents to rows. Raises ConfigError for a document that cannot be used."""

    def warnings(self) -> list[str]:
        """Of documents and settings, and after a pass also what it met."""

    def memory(self) -> list[tuple[str, int]]:
        """What needs memory, and bytes. Raises OutOfMemoryError when the run does not fit."""

    def load(self) -> None:
        """Reads the weights now instead of at the first run."""

    def facts(self) -> Facts: ...
    def configured(self, settings: Settings) -> Session:
        """The same model and documents, to be run with other settings."""

    def run(self, config: DecodeConfig) -> Generator[Event, None, None]: ...
    def compare(self, config: DecodeConfig) -> Generator[tuple[bool, Event], None, None]:
        """Plain and speculative runs in turns: each event, and whether it is the latter's."""

    def check(self, plain: RunReport, speculative: RunReport) -> Losslessness: ...
    def spell(self, before: int, tokens: Sequence[int]) -> str:
        """The text of tokens that follow another one."""

    def tune(self, outcome: TuneOutcome, progress: Watch) -> None:
        """Answers the outcome's question over these documents; see tune_session.tune_opened."""


class OpenedSession:
    """The real Session: an engine session with what this run asks of it."""

    def __init__(
        self,
        session: EngineSession,
        documents: Sequence[Document] | Sequence[Workload],
        settings: Settings,
    ) -> None:
        self._session, self._documents = session, documents
        self._settings, self._config = settings, settings.decode_config()

    def requests(self) -> Sequence[Request]:
        wanted = self._settings
        self._requests = self._session.requests(
            self._documents, context=wanted.context, batch=wanted.batch, take=wanted.take,
            rows=wanted.rows, prompt=wanted.prompt, raw=wanted.raw,
        )  # fmt: skip
        return self._requests

    def warnings(self) -> list[str]:
        found = [warning for document in self._documents for warning in document.warnings]
        return found + self._session.warnings(self._requests, self._config)

    def memory(self) -> list[tuple[str, int]]:
        plan = self._session.plan_memory(self._requests, self._config, self._settings.batch)
        return plan.lines()

    def load(self) -> None:
        _ = self._session.model

    def facts(self) -> Facts:
        from magicdec.kernels.linear import int8_unsupported
        from magicdec.profiles.costs.model import ModelShape

        session = self._session
        spec = session.model.spec
        shape = ModelShape(
            name=session.model_name, layers=spec.layers, hidden=spec.hidden_size,
            intermediate=spec.intermediate_size, heads=spec.heads, kv_heads=spec.kv_heads,
            head_dim=spec.head_dim, vocab=spec.vocab_size, max_position=spec.trained_window,
            tied=spec.tied,
        )  # fmt: skip
        int8 = not int8_unsupported(session.device, session.dtype)
        return Facts(shape, session.memory_room(), int8)

    def configured(self, settings: Settings) -> OpenedSession:
        return OpenedSession(self._session, self._documents, settings)

    def run(self, config: DecodeConfig) -> Generator[Event, None, None]:
        return self._session.run(self._requests, config, batch=self._settings.batch)

    def compare(self, config: DecodeConfig) -> Generator[tuple[bool, Event], None, None]:
        from magicdec.engine.compare.comparison import compare

        return compare(self._session, self._requests, config, batch=self._settings.batch)

    def check(self, plain: RunReport, speculative: RunReport) -> Losslessness:
        return self._session.check(
            self._requests, self._config, _outputs(plain), _outputs(speculative)
        )

    def spell(self, before: int, tokens: Sequence[int]) -> str:
        decode = self._session.tokenizer.decode
        return decode([before, *tokens])[len(decode([before])) :]

    def tune(self, outcome: TuneOutcome, progress: Watch) -> None:
        from magicdec.cli.tune.session import tune_opened

        tune_opened(outcome, self._session, self._documents, progress)

    def environment(self) -> dict[str, object]:
        from magicdec.engine.drafters.base import draft_weights
        from magicdec.profiles.files.gamma_names import told_apart

        session, drafting = self._session, None
        weights = draft_weights(self._config, session.device, session.dtype)
        with contextlib.suppress(MagicdecError):  # the run will say it
            drafting = session.drafts.identity(self._config)
        return {
            **session.environment(),
            "draft_weights": weights,
            "draft_identity": drafting,
            "gamma_policy": told_apart(self._settings.gamma_policy, self._config.gamma_policy),
            "documents": digests(self._documents),
        }


def open_session(sources: Sequence[str], settings: Settings, progress: Progress) -> Session:
    """Reads the documents, then opens the model. Raises ConfigError, ModelError."""
    return OpenedSession(*open_engine(sources, settings, progress), settings)


def open_engine(
    sources: Sequence[str], settings: Settings, progress: Progress
) -> tuple[EngineSession, Sequence[Document] | Sequence[Workload]]:
    """The same for what runs many settings over one model: its session and the documents."""
    from magicdec.engine.text.ruler.names import read_sources

    documents = read_sources(sources)  # before torch: a misspelt name shows at once
    from magicdec.engine.memory.free import require_room

    progress(f"opening {settings.model}", None)
    require_room(before_torch=True)
    from magicdec.engine.session import open_session as open_engine_session
    from magicdec.engine.text.stops import require_stops

    interrupts.raise_again()
    session = open_engine_session(
        settings.model, device=settings.device, dtype=settings.dtype, kv_dtype=settings.kv_dtype,
        threads=settings.threads, attention=settings.attention, chunk=settings.chunk,
        progress=progress, sync_phases=settings.sync_phases,
        prefill_cache=settings.prefill_cache_bytes,
    )  # fmt: skip
    require_stops(settings.stop_token, session.spec.vocab_size)  # before its weights are read
    return session, documents


def list_models() -> Sequence[ModelInfo]:
    """The models that have an alias."""
    from magicdec.engine.loading import aliases

    return aliases.list_models()


def pull_model(alias: str, progress: Progress) -> Path:
    """Fetches a model into the user's cache. Raises ModelError."""
    from magicdec.engine.loading import aliases

    if any(each.alias == alias and each.cached is None for each in aliases.list_models()):
        progress(f"preparing to convert {alias}", None)
        aliases.import_converter()
    interrupts.raise_again()
    return aliases.pull(alias, progress)


def _outputs(report: RunReport) -> list[tuple[int, ...]]:
    return [row.token_ids for row in report.rows]
