"""Shared fixtures: tiny random models made with transformers, so that no download is needed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest


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
