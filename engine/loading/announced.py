"""Holds a checkpoint against what its configuration announces, as transformers does.

A tensor that the configuration does not announce (a bias, a norm of q or k, a layer) is left
unread, and a stored head that differs from the embeddings is used though the configuration ties
the two. The user hears of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.weights import HEAD, Weights, optional_shapes, required_shapes
from magicdec.engine.model.spec import ModelSpec

EMBEDDINGS = "model.embed_tokens.weight"
_PEER = "transformers"
_DERIVED = ".rotary_emb.inv_freq"  # old files store what RoPE computes
_QKV = tuple(f"self_attn.{x}_proj.bias" for x in "qkv")
_ATTENTION = (*_QKV, "self_attn.o_proj.bias")
_MLP = tuple(f"mlp.{x}_proj.bias" for x in ("gate", "up", "down"))
_NORMS = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")


def as_announced(
    folder: Path, config: Mapping[str, Any], spec: ModelSpec, weights: Weights
) -> tuple[ModelSpec, tuple[str, ...]]:
    """The specification as the files have it, and what the user should know. `weights` loses what
    is not announced. Raises ModelError where what is announced is missing."""
    notices = []
    announced = _announced(spec.model_type, config)
    optional = optional_shapes(spec)
    wanted = {name for name in optional if name.split(".", 3)[3] in announced}
    for name in sorted(wanted - set(weights)):
        raise ModelError(
            f"{folder} lacks tensor {name!r}, which its configuration asks for; "
            "copy or download the whole model again"
        )
    wanted |= {*required_shapes(spec), HEAD}
    left = [name for name in sorted(weights) if name not in wanted]
    weights.leave_out(left)
    if extra := [name for name in left if not name.endswith(_DERIVED)]:
        notices.append(
            f"{folder} holds {extra[0]!r}"
            + (f" and {len(extra) - 1} more tensors" if len(extra) > 1 else "")
            + f", which its configuration does not announce: left unread, as {_PEER} does"
        )
    if spec.tied and HEAD in weights and not torch.equal(weights[HEAD], weights[EMBEDDINGS]):
        spec = replace(spec, tied=False)
        notices.append(
            f"{folder} ties the head to the embeddings (tie_word_embeddings) and stores another "
            f"one: the stored one is used, as {_PEER} does"
        )
    return spec, tuple(notices)


def _announced(model_type: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    biased = _ATTENTION if config.get("attention_bias") else ()
    match model_type:
        case "llama":
            return (*biased, *(_MLP if config.get("mlp_bias") else ()))
        case "qwen2":
            return _QKV
        case "qwen3":
            return (*biased, *_NORMS)
    return ()
