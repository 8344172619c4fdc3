"""Tiny models on disk: folders as save_pretrained writes them, and GGUF files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

SPECIAL = ["<s>", "</s>", "<|turn|>"]
MERGES = [("Ċ", "Ċ"), ("Ġ", "c"), ("1", "3")]
TOKENS = [
    *SPECIAL,
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *("".join(pair) for pair in MERGES),
]
VOCABULARY = len(TOKENS) + 6  # padded, as published embeddings often are

# Hugging Face part -> llama.cpp part
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


@pytest.fixture(autouse=True)
def cache_dir(own_cache: Path) -> Path:
    """Every test has a cache of its own; subprocesses inherit it."""
    return own_cache


@pytest.fixture
def vocabulary() -> list[str]:
    """The tiny models' tokens; the first three are special."""
    return list(TOKENS)


@pytest.fixture
def tiny() -> Callable[..., Any]:
    """A factory of random models of any supported type."""

    def make(kind: str = "llama", **changes: Any) -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        sizes: dict[str, Any] = {
            "vocab_size": VOCABULARY,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 256,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": False,
        }
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**sizes, **changes}))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        return model

    return make


@pytest.fixture
def save(tiny: Callable[..., Any], tmp_path: Path) -> Callable[..., Path]:
    """A factory of model folders; `max_shard_size` splits the weights."""

    def make(kind: str = "llama", max_shard_size: str = "5GB", **changes: Any) -> Path:
        folder = tmp_path / kind
        tiny(kind, **changes).save_pretrained(folder, max_shard_size=max_shard_size)
        write_tokenizer(folder)
        return folder

    return make


def write_tokenizer(folder: Path) -> None:
    vocabulary = {token: i for i, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    tokenizer.enable_truncation(8)  # a limit that published files sometimes carry
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture
def gguf_file(tiny: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """A factory of (GGUF path, transformers' model it was made from)."""

    def make(
        architecture: str = "llama",
        *,
        kind: str | None = None,
        metadata: dict[str, Any] | None = None,
        tensors: dict[str, Any] | None = None,
        quantize: gguf.GGMLQuantizationType | None = None,
        name: str = "tiny",
        **changes: Any,
    ) -> tuple[Path, Any]:
        model = tiny(kind or architecture, **changes)
        path = tmp_path / f"{name}.gguf"
        write_gguf(path, architecture, model, metadata or {}, tensors or {}, quantize)
        return path, model

    return make


def write_gguf(
    path: Path,
    architecture: str,
    model: Any,
    metadata: dict[str, Any],
    tensors: dict[str, Any],
    quantize: gguf.GGMLQuantizationType | None,
) -> None:
    """`metadata` and `tensors` replace or add to the model's own; None leaves one out."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    keys: dict[str, Any] = {
        f"{architecture}.context_length": config.max_position_embeddings,
        f"{architecture}.embedding_length": config.hidden_size,
        f"{architecture}.block_count": config.num_hidden_layers,
        f"{architecture}.feed_forward_length": config.intermediate_size,
        f"{architecture}.attention.head_count": config.num_attention_heads,
        f"{architecture}.attention.head_count_kv": config.num_key_value_heads,
        f"{architecture}.attention.key_length": 16,
        f"{architecture}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{architecture}.rope.freq_base": config.rope_parameters["rope_theta"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.eot_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }
    for key, value in (keys | metadata).items():
        if value is not None:
            _add(writer, key, value)
    arrays: dict[str, Any] = dict(_gguf_tensors(architecture, model))
    for name, array in (arrays | tensors).items():
        if array is None:
            continue
        if quantize is not None and array.ndim == 2:
            writer.add_tensor(name, gguf.quantize(array, quantize), raw_dtype=quantize)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _gguf_tensors(architecture: str, model: Any) -> Iterator[tuple[str, np.ndarray]]:
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, _, suffix = name.rpartition(".")
        prefix = ""
        if stem.startswith("model.layers."):
            _, _, layer, stem = stem.split(".", 3)
            prefix = f"blk.{layer}."
        part = PARTS[stem]
        array = tensor.detach().numpy()
        if architecture == "llama" and part in heads:  # llama.cpp's convert_hf_to_gguf: permute
            shape = (heads[part], 2, array.shape[0] // heads[part] // 2, *array.shape[1:])
            array = np.ascontiguousarray(array.reshape(shape).swapaxes(1, 2).reshape(array.shape))
        yield f"{prefix}{part}.{suffix}", array
