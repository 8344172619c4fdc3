"""Text to tokens and back: a thin layer over the `tokenizers` library.

transformers takes seconds to import, so it is used only where it adds something: a chat template,
or a tokenizer that has no tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer as Backend

from magicdec.engine.errors import ModelError


@dataclass(slots=True)
class Tokenizer:
    """A model's tokenizer.

    `bos_id` is prepended to raw documents when the model was trained with it, else None.
    `special_text` gives bos_token, eos_token, ... to the chat template.
    """

    backend: Backend
    bos_id: int | None = None
    chat_template: str | None = None
    special_text: dict[str, Any] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, without BOS; special tokens written in the text are recognised."""
        with tokenizing():
            ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        with tokenizing():
            text: str = self.backend.decode(list(ids), skip_special_tokens=not keep_special)
        return text


@contextmanager
def tokenizing(fault: str = "the model's tokenizer cannot be used") -> Iterator[None]:
    """Turns what the library raises, bare exceptions and Rust's panics, into a ModelError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, ModelError):
        raise
    except BaseException as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelError(f"{fault} ({why}); copy or download it again") from None
