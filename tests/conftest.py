"""Shared fixtures: tiny random models made with transformers, so that no download is needed."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

if hasattr(signal, "SIGHUP"):  # a suite started by nohup ignores it, and so would its processes
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass(frozen=True)
class Tiny:
    """A model in both worlds: ours and transformers'."""

    ours: Any
    theirs: Any


@functools.cache
def make_tiny(kind: str = "llama", seed: int = 0, **changes: Any) -> Tiny:
    """A seeded random model: 2 layers, 4 query heads on 2 KV heads of 16, vocabulary 128."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from magicdec.engine.model.decoder import Decoder
    from magicdec.engine.model.spec import ModelSpec

    sizes: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "initializer_range": 0.2,  # decided logits: no accidental ties
        "bos_token_id": None,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    rope = changes.pop("rope", None)
    if rope is not None:
        sizes["rope_parameters"] = {"rope_theta": 10000.0, **dict(rope)}
    config = AutoConfig.for_model(kind, **{**sizes, **changes})
    torch.manual_seed(seed)
    theirs = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.5)
        elif "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2)
    ours = Decoder(
        ModelSpec.from_hf(config, eos_ids=(2,)),
        theirs.state_dict(),
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    return Tiny(ours, theirs)


@pytest.fixture
def tiny() -> Any:
    return make_tiny


def save_checkpoint(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """A seeded two-layer Llama over bytes, as a folder that the command line opens."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    sizes: dict[str, Any] = {
        "vocab_size": len(alphabet) + 1, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 512, "initializer_range": 0.2, "bos_token_id": None,
        "eos_token_id": len(alphabet), "tie_word_embeddings": False,
    }  # fmt: skip
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**{**sizes, **changes})).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that all tests may share."""
    return save_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


@pytest.fixture
def make_checkpoint() -> Any:
    """make_checkpoint(folder, seed=0, num_hidden_layers=2, ...): see `save_checkpoint`."""
    return save_checkpoint


@functools.cache
def make_tokenizer() -> Any:
    """128 words: token i is written "w<i>", words are joined by spaces."""
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    from magicdec.engine.text.tokenizer import Tokenizer

    backend = Backend(WordLevel({f"w{i}": i for i in range(128)}, unk_token="w0"))
    backend.pre_tokenizer = Whitespace()
    return Tokenizer(backend)


@dataclass(frozen=True)
class Outcome:
    """All events of a run, and what the rows said."""

    events: list[Any]
    engine: Any

    @property
    def tokens(self) -> list[list[int]]:
        return [list(e.token_ids) for e in self._finished()]

    @property
    def texts(self) -> list[str]:
        return [e.text for e in self._finished()]

    @property
    def reasons(self) -> list[str]:
        return [e.finish_reason for e in self._finished()]

    @property
    def steps(self) -> list[Any]:
        return [e for e in self.events if type(e).__name__ == "StepFinished"]

    def _finished(self) -> list[Any]:
        ended = [e for e in self.events if type(e).__name__ == "RowFinished"]
        return sorted(ended, key=lambda e: e.row)


@pytest.fixture
def decode() -> Any:
    """Runs prompts through an engine: decode(model, prompts, slots=..., gamma=..., ...)."""
    import torch

    from magicdec.engine.config import DecodeConfig
    from magicdec.engine.engine import Engine
    from magicdec.engine.request import Request
    from magicdec.kernels.backends import get_backend

    def run(
        model: Any,
        prompts: Any,
        *,
        slots: int | None = None,
        rows: Any = None,
        chunk: int = 32,
        capacity: int | None = None,
        attention: str = "sdpa",
        engine: Any = None,
        kv_dtype: Any = None,
        draft_decoder: Any = None,
        **settings: Any,
    ) -> Outcome:
        settings.setdefault("draft_weights", "same")
        config = DecodeConfig(**settings)
        longest = max(len(p) for p in prompts)
        engine = engine or Engine(
            model,
            make_tokenizer(),
            get_backend(attention, torch.device("cpu")),
            slots=slots or len(prompts),
            capacity=capacity or longest + config.max_new_tokens + config.scratch + 1,
            chunk=chunk,
            kv_dtype=kv_dtype,
        )
        requests = [
            Request(f"doc{i}", tuple(p), i)
            for i, p in zip(rows or range(len(prompts)), prompts, strict=True)
        ]
        return Outcome(list(engine.run(requests, config, draft_decoder)), engine)

    return run


@pytest.fixture
def signals() -> Iterator[None]:
    """Signals as the command line takes them; afterwards as they were."""
    from magicdec.cli import interrupts

    before, hook = {n: signal.getsignal(n) for n in interrupts.DEFAULTS}, sys.unraisablehook
    for number, default in interrupts.DEFAULTS.items():
        signal.signal(number, default)
    interrupts.exit_at_once()
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


@functools.cache
def make_prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    import random

    rng = random.Random(1000 * seed + length)
    return tuple(rng.randrange(3, 128) for _ in range(length))


@pytest.fixture
def prompt() -> Any:
    return make_prompt


@pytest.fixture
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with nothing but the kernels: to build them takes seconds, and they are the
    same in every test."""
    from magicdec.kernels.cachedir import OVERRIDE, cache_root

    kernels, folder = cache_root() / "native", tmp_path / "cache"
    kernels.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    (folder / "native").symlink_to(kernels)
    monkeypatch.setenv(OVERRIDE, str(folder))
    return folder


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else runs on the machine of the tests is no matter of theirs."""
    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_SCATTER", 1e9)
    monkeypatch.setattr("magicdec.profiles.machine.steadiness.QUIET_OTHERS", 1.0)


_HOLD = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def hold_lock(path: Path) -> Iterator[int]:
    """Another process holds the lock `path` inside the block; gives its id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.stdin.close()


@pytest.fixture
def hold() -> Callable[[Path], AbstractContextManager[int]]:
    return hold_lock
