"""An opened model: its specification, its weights on the CPU and its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from magicdec.engine.loading.file_hashes import Check
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.text.tokenizer import Tokenizer

#: Called with what is being done and the done share of it, None when it cannot be known.
Progress = Callable[[str, float | None], None]


def silent(_what: str, _share: float | None) -> None:
    """The Progress that shows nothing."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`weights` maps Hugging Face parameter names to memory-mapped CPU tensors."""

    name: str  # as the user gave it
    spec: ModelSpec
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    check: Check | None = None  # of a converted model: whether it is as it was made
    asked: Mapping[str, Any] = field(default_factory=dict)  # see `generation.asked_of`

    notices: tuple[str, ...] = ()  # what the user should know of these files

    def require_intact(self, *, wait: bool = True) -> None:
        """Raises WrongWeightsError for weights that have changed since they were made."""
        if self.check is not None:
            self.check.require(wait=wait)
