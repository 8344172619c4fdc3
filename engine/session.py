"""A model opened for use: what the command line and the terminal app hold on to."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import cached_property

import torch

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.cache.prefill import PREFILL_CHUNK
from magicdec.engine.cache.prefill_store import PrefillStore
from magicdec.engine.clock import Clock
from magicdec.engine.compare.lossless import compare
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.config import DecodeConfig
from magicdec.engine.device import (
    dtype_name,
    pick_attention,
    pick_device,
    pick_dtype,
    pick_kv_dtype,
)
from magicdec.engine.engine import Engine
from magicdec.engine.environment import environment
from magicdec.engine.events import Event, RunFinished
from magicdec.engine.loading.checkpoint import Checkpoint, Progress, silent
from magicdec.engine.loading.draft import DraftModels
from magicdec.engine.loading.generation import unheeded
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.loading.weights import content_of, identity_of
from magicdec.engine.memory.exhaustion import memory_errors
from magicdec.engine.memory.free import require_room, share_one_heap
from magicdec.engine.memory.plan import (
    MemoryForecast,
    available_memory,
    forecast,
    memory_room,
    require_fit,
)
from magicdec.engine.memory.run_shape import RunShape, capacity
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.request import Request
from magicdec.engine.text.documents import Document
from magicdec.engine.text.prompts import RowPlan
from magicdec.engine.text.requests import make_requests, require_known
from magicdec.engine.text.ruler.workload import Workload
from magicdec.engine.text.stops import idle_stops
from magicdec.engine.text.tokenizer import Take, Tokenizer
from magicdec.engine.windows import beyond_draft_window, beyond_window
from magicdec.kernels.attention import AttentionBackend
from magicdec.kernels.locks import waited


class Session:
    """A checkpoint, the decoder made from it on first use, and the cache of the last run.

    Opening reads no weights, so that documents can be read and memory forecast before.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device,
        dtype: torch.dtype,
        kv_dtype: torch.dtype,
        backend: AttentionBackend,
        chunk: int,
        progress: Progress,
        sync_phases: bool = False,
        prefill_cache: int = 0,
        notices: Sequence[str] = (),
        opening: float = 0.0,
    ) -> None:
        """opening: seconds that its kernels took; they count to the first run's phase `load`."""
        self._checkpoint, self._progress, self._notices = checkpoint, progress, notices
        self.device, self.dtype, self.backend, self.chunk = device, dtype, backend, chunk
        self.kv_dtype, self._prefill_cache = kv_dtype, prefill_cache
        self._store: PrefillStore | None = None
        wait = sync_phases and device.type == "cuda"
        self.clock = Clock(synchronize=torch.cuda.synchronize if wait else None)
        self._opening = opening  # with the weights' seconds, where those came before a run
        self._model: Decoder | None = None
        self.drafts = DraftModels(checkpoint, self._decoder, progress)
        self._engine: Engine | None = None

    @property
    def model_name(self) -> str:
        return self._checkpoint.name

    @property
    def spec(self) -> ModelSpec:
        return self._checkpoint.spec

    @property
    def tokenizer(self) -> Tokenizer:
        return self._checkpoint.tokenizer

    @property
    def model(self) -> Decoder:
        """The decoder, loaded on first use."""
        if self._model is None:
            self._progress("loading weights", None)
            began = self.clock.now()
            with memory_errors():
                require_room(torch.get_num_threads())
                self._model = self._decoder(self._checkpoint)
            self._opening += self.clock.now() - began
        return self._model

    def _decoder(self, checkpoint: Checkpoint) -> Decoder:
        return Decoder(
            checkpoint.spec,
            checkpoint.weights,
            device=self.device,
            dtype=self.dtype,
            pointwise=self.backend.pointwise,
        )

    @cached_property
    def identity(self) -> str:
        """The model's, by what its weights say; its name may be that of another one, too."""
        return content_of(self._checkpoint.spec, self._checkpoint.weights)

    @property
    def cache(self) -> KVCache:
        """The full cache of the last run."""
        assert self._engine is not None, "nothing has run yet"
        return self._engine.cache

    def environment(self) -> dict[str, object]:
        """Where this session runs, as plain data."""
        return {
            **environment(self.device),
            "model": self.model_name,
            "identity": self.identity,
            "parameters": self._checkpoint.spec.parameters,
            "dtype": dtype_name(self.dtype),
            "kv_dtype": dtype_name(self.kv_dtype),
            "attention": self.backend.name,
        }

    def requests(
        self,
        documents: Sequence[Document] | Sequence[Workload],
        *,
        context: int | None,
        batch: int,
        take: Take = "head",
        rows: RowPlan = "staggered",
        prompt: str | None = None,
        raw: bool = False,
    ) -> list[Request]:
        """See `make_requests`. Raises ConfigError, ModelError."""
        made = make_requests(
            documents, self.tokenizer, self._progress, context=context, batch=batch, take=take,
            rows=rows, prompt=prompt, raw=raw,
        )  # fmt: skip
        require_known(made, self.tokenizer, self.spec.vocab_size, self.model_name)
        return made

    def plan_memory(
        self, requests: Sequence[Request], config: DecodeConfig, batch: int
    ) -> MemoryForecast:
        """What a run will allocate. Raises OutOfMemoryError when that is not there."""
        run = self._run_shape(config, min(batch, len(requests)), _longest(requests))
        return require_fit(run, self.memory_room(), memory_room(self.device).source)

    def forecast(self, config: DecodeConfig, *, batch: int, context: int) -> MemoryForecast:
        """What such a run would allocate, whether that is there or not."""
        return forecast(self._run_shape(config, batch, context), self.memory_room())

    def _run_shape(self, config: DecodeConfig, batch: int, context: int) -> RunShape:
        draft = self.drafts.spec(config)
        return RunShape(
            self.spec, config, batch, context, self.chunk, self.dtype, self.kv_dtype, self.device,
            draft,
        )  # fmt: skip

    def memory_room(self) -> int:
        """Bytes that the model and a run may take: what is free, and what this session holds."""
        room = available_memory(self.device)
        if self._model is not None:
            room += self._model.nbytes
        room += self.drafts.nbytes
        if self._engine is not None:
            room += self._engine.cache.k.nbytes + self._engine.cache.v.nbytes
        return room

    def notices(self) -> list[str]:
        """What the user should know of how it was opened, and of what it could not keep so far."""
        found = [*self._notices, *self._checkpoint.notices]
        found += [notice for draft in self.drafts.opened() for notice in draft.notices]
        return found + (self._store.warnings if self._store is not None else [])

    def warnings(self, requests: Sequence[Request], config: DecodeConfig) -> list[str]:
        """What the user should know about this session, these settings and the last run."""
        found, longest = self.notices(), _longest(requests)
        found += idle_stops(self.tokenizer, config.stop)
        found += beyond_draft_window(self.drafts.spec(config), config, longest)
        left = unheeded(self.model_name, self._checkpoint.asked, config.sampling)
        found += [left] if left else []
        return found + beyond_window(self.model_name, self.spec, longest + config.max_new_tokens)

    def run(
        self, requests: Sequence[Request], config: DecodeConfig, *, batch: int, observed: int = 0
    ) -> Generator[Event, None, None]:
        """Decodes the requests, `batch` rows at a time. Prompts of the last run are kept.

        observed: see `Engine.run`.

        Raises ConfigError, OutOfMemoryError, ModelError, NotFiniteError.
        """
        slots = min(batch, len(requests))
        needed = capacity(config, _longest(requests))
        with memory_errors():
            opening = self._opening
            self.clock.restart()
            with self.clock.phase("load"):
                engine, draft = self._engine_for(slots, needed), self.drafts.model(config)
            require_room(torch.get_num_threads())
            loaded, self._opening = opening + self.clock.lap().load, 0.0
            run = engine.run(requests, config, draft, observed=observed, loaded=loaded)
            with closing(run) as events:
                for event in events:
                    # Before anything is reported; a large model is still being read meanwhile.
                    self.require_intact(wait=isinstance(event, RunFinished))
                    yield event

    def _engine_for(self, slots: int, needed: int) -> Engine:
        """The last run's, where it has the rows and the room."""
        engine = self._engine
        if engine is None or engine.cache.rows != slots or engine.cache.capacity < needed:
            self._engine = None  # the old cache is freed before the new one is made
            engine = Engine(
                self.model, self.tokenizer, self.backend,
                slots=slots, capacity=needed, chunk=self.chunk, kv_dtype=self.kv_dtype,
                store=self.prefill_store, clock=self.clock,
            )  # fmt: skip
            self._engine = engine
        return engine

    def require_intact(self, *, wait: bool = True) -> None:
        """Raises WrongWeightsError once a converted model turns out to have changed since it was
        made; `wait` for that to be known."""
        for checkpoint in (self._checkpoint, *self.drafts.opened()):
            checkpoint.require_intact(wait=wait)

    @property
    def prefill_store(self) -> PrefillStore | None:
        """On CPU only: a GPU computes K and V about as fast as a disk delivers them."""
        if self._store is None and self._prefill_cache > 0 and self.device.type == "cpu":
            self._store = PrefillStore(
                identity_of(self._checkpoint.spec, self._checkpoint.weights),
                self.model_name,
                self._prefill_cache,
                say=lambda what: self._progress(what, None),
            )
        return self._store

    def check(
        self,
        requests: Sequence[Request],
        config: DecodeConfig,
        plain: Sequence[Sequence[int]],
        speculative: Sequence[Sequence[int]],
    ) -> Losslessness:
        """Compares a plain and a speculative run: the token ids of each request."""
        with memory_errors():
            return compare(
                self.model, self.backend, requests, plain, speculative,
                width=config.most_drafted + 1, kv_dtype=self.kv_dtype,
                sampling=config.sampling,
            )  # fmt: skip


def open_session(
    model: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    kv_dtype: str = "auto",
    threads: int | None = None,
    attention: str = "auto",
    chunk: int = PREFILL_CHUNK,
    sync_phases: bool = False,
    prefill_cache: int = 0,
    progress: Progress = silent,
) -> Session:
    """Opens a model by alias, Hugging Face id, folder or .gguf file.

    sync_phases: wait for a GPU at every change of phase, so that each is timed exactly.
    prefill_cache: bytes of prefills to keep in the user's cache for later runs; 0 keeps none.
    Raises ModelError for a model or device that is unavailable, ConfigError for a bad setting.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    share_one_heap()
    require_room(torch.get_num_threads())
    place = pick_device(device)
    notices: list[str] = []
    arithmetic = pick_dtype(dtype, place)
    checkpoint, stored = open_checkpoint(model, progress), pick_kv_dtype(kv_dtype, arithmetic)
    began = time.perf_counter() - waited()  # for another process' build
    backend = pick_attention(attention, place, progress, notices)
    return Session(
        checkpoint,
        device=place,
        dtype=arithmetic,
        kv_dtype=stored,
        backend=backend,
        chunk=chunk,
        progress=progress,
        sync_phases=sync_phases,
        prefill_cache=prefill_cache,
        notices=notices,
        opening=time.perf_counter() - waited() - began,
    )


def _longest(requests: Sequence[Request]) -> int:
    return max(len(r.tokens) for r in requests)
