"""What the memory of a run depends on: its model, its settings, and how many rows how long."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from magicdec.engine.config import MAX_GAMMA, DecodeConfig
from magicdec.engine.model.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class RunShape:
    """`batch` rows of up to `context` prompt tokens, prefilled in chunks of so many."""

    spec: ModelSpec
    config: DecodeConfig
    batch: int
    context: int
    chunk: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    device: torch.device
    draft: ModelSpec | None = None  # the model that `config.draft` names

    @property
    def capacity(self) -> int:
        """Entries of a row in the full cache."""
        return capacity(self.config, self.context)

    @property
    def kv_bytes_per_token(self) -> int:
        """Of the target's cache."""
        return self.spec.kv_bytes_per_token(self.kv_dtype.itemsize)


def capacity(config: DecodeConfig, context: int) -> int:
    """Full-cache entries per row: the prompt, what it may gain, and a step's scratch.

    The scratch is for any γ, so that runs that differ in γ share one cache and its prefill, as do
    those with trees of no more nodes.
    """
    return context + config.max_new_tokens + max(MAX_GAMMA, config.scratch) + 1
