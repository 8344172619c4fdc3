"""transformers' `generate` on the same weights and the same cached prompts."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from magicdec.engine.cache.kv import KVCache
from magicdec.engine.loading.checkpoint import Checkpoint


def transformers_model(checkpoint: Checkpoint) -> Any:
    """transformers' model of the same architecture with the same weights, ready to generate."""
    from transformers import AutoConfig, AutoModelForCausalLM

    spec = checkpoint.spec
    config = AutoConfig.for_model(
        spec.model_type,
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=spec.rms_norm_eps,
        max_position_embeddings=spec.max_position,
        tie_word_embeddings=spec.tied,
        rope_parameters=spec.rope,
    )
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model.load_state_dict(checkpoint.weights, strict=not spec.tied)
    return model.eval()


class TransformersDecoding:
    """Decodes where our cache stands, so that its prompts need no second prefill."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._model = transformers_model(checkpoint)

    def prefill(self, ids: Tensor) -> float:
        """Seconds of one forward over a prompt [1, S], with the last token's logits alone."""
        began = time.perf_counter()
        with torch.inference_mode():
            self._model(ids, logits_to_keep=1, use_cache=True)
        return time.perf_counter() - began

    def decode(self, cache: KVCache, batch: int, tokens: int) -> float:
        """Seconds per greedy step after the prompts in the first `batch` slots, equally long."""
        prompts = [p for p in cache.prompts[:batch] if p is not None]
        ids = torch.stack([torch.from_numpy(p.tokens) for p in prompts])
        past = self._past(cache, batch, ids.shape[1] - 1)  # the last token is fed, not cached
        began = time.perf_counter()
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            past_key_values=past,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return (time.perf_counter() - began) / tokens

    @staticmethod
    def _past(cache: KVCache, batch: int, length: int) -> Any:
        from transformers import DynamicCache

        past = DynamicCache()
        for layer in range(cache.k.shape[0]):
            past.update(
                cache.k[layer, :batch, :, :length].float(),
                cache.v[layer, :batch, :, :length].float(),
                layer,
            )
        return past
