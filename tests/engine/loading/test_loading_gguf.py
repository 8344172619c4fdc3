"""GGUF files held against the transformers model they were written from."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.model.spec import ModelSpec

Make = Callable[..., tuple[Path, Any]]


def refusal(file: Path) -> str:
    with pytest.raises(ModelError) as caught:
        open_checkpoint(str(file))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "tie_word_embeddings": True}),
        ("llama", {"kind": "mistral", "sliding_window": None}),
        ("qwen2", {}),
        ("qwen3", {"tie_word_embeddings": True}),
    ],
)
def test_model_survives_the_round_trip(
    architecture: str, changes: dict[str, Any], gguf_file: Make
) -> None:
    file, model = gguf_file(architecture, **changes)
    checkpoint = open_checkpoint(str(file))
    expected = model.state_dict()
    if model.config.tie_word_embeddings:
        del expected["lm_head.weight"]
    assert set(checkpoint.weights) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(checkpoint.weights[name], tensor), name
    wanted = ModelSpec.from_hf(model.config, eos_ids=(1, 2)).to_json()
    assert checkpoint.spec.to_json() == wanted | {"model_type": architecture}


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_weights_equal_transformers_own_reading(architecture: str, gguf_file: Make) -> None:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    quantized = {"hidden_size": 64, "quantize": gguf.GGMLQuantizationType.Q8_0}
    file, model = gguf_file(architecture, **quantized)
    theirs = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    ours = open_checkpoint(str(file)).weights
    assert set(ours) == set(theirs)
    for name in ours:
        assert torch.equal(ours[name], theirs[name].float()), name
    assert not torch.equal(ours["lm_head.weight"], model.lm_head.weight)  # it was quantized


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        ({"llama.rope.scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0}, {}),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 64,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
            },
        ),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 64,
                "llama.rope.scaling.attn_factor": 0.5,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "attention_factor": 0.5 * (1 + 0.1 * math.log(4)),
            },
        ),
    ],
)
def test_rope_scaling(metadata: Any, expected: dict[str, Any], gguf_file: Make) -> None:
    file, _ = gguf_file(metadata=metadata)
    usual = {"rope_type": "default", "rope_theta": 10000.0}
    spec = open_checkpoint(str(file)).spec
    assert spec.rope == usual | expected
    # The file's context is 256; YaRN counts from the 64 before it.
    assert spec.trained_window == {"yarn": 256, "linear": 1024}.get(spec.rope["rope_type"], 256)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_recognised_by_its_frequencies(factor: float, gguf_file: Make) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=4, rope_parameters=rope, max_position_embeddings=16384
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1.0 / 500000.0 ** (torch.arange(0, 16, 2) / 16)
    tensors = {"rope_freqs.weight": (plain / scaled).numpy()}
    metadata = {"llama.rope.freq_base": 500000.0}
    file, _ = gguf_file(metadata=metadata, tensors=tensors)
    assert open_checkpoint(str(file)).spec.rope == rope

    tensors["rope_freqs.weight"][3] *= 1.01
    other, _ = gguf_file(metadata=metadata, tensors=tensors, name="other")
    assert "rope_freqs.weight" in refusal(other)


def test_frequency_factors_of_one_change_nothing(gguf_file: Make) -> None:
    file, _ = gguf_file(tensors={"rope_freqs.weight": np.ones(8, dtype=np.float32)})
    assert open_checkpoint(str(file)).spec.rope["rope_type"] == "default"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metadata": {"llama.rope.scaling.type": "longrope"}}, "longrope"),
        ({"metadata": {"llama.expert_count": 8}}, "expert_count = 8"),
        ({"metadata": {"llama.attention.sliding_window": 32}}, "sliding_window = 32"),
        ({"metadata": {"llama.rope.dimension_count": 8}}, "dimension_count = 8"),
        ({"metadata": {"llama.attention.head_count_kv": [2, 1]}}, "head_count_kv = [2, 1]"),
        ({"metadata": {"llama.block_count": None}}, "block_count = None"),
        ({"metadata": {"llama.block_count": 3}}, "model.layers.2."),
        ({"metadata": {"llama.attention.head_count": 8}}, "shape"),
        ({"metadata": {"split.count": 2}}, "--merge"),
        ({"metadata": {"tokenizer.ggml.tokens": None}}, "no tokenizer"),
        ({"metadata": {"tokenizer.ggml.pre": "martian"}}, "'martian'"),
        ({"metadata": {"tokenizer.ggml.model": "rwkv"}}, "rwkv"),
        ({"tensors": {"blk.0.ffn_gate_inp.weight": np.ones((2, 2), "f4")}}, "ffn_gate_inp"),
        ({"tensors": {"token_embd.weight": None}}, "embed_tokens"),
    ],
)
def test_refusals(changes: dict[str, Any], said: str, gguf_file: Make, cache_dir: Path) -> None:
    file, _ = gguf_file(**changes)
    assert said in refusal(file)
    left = [path for path in (cache_dir / "models").iterdir() if path.suffix != ".lock"]
    assert left == []


def test_other_architecture_is_refused_with_the_supported(gguf_file: Make) -> None:
    file, _ = gguf_file("mamba", kind="llama")
    message = refusal(file)
    assert "'mamba'" in message
    assert "llama, qwen2, qwen3" in message


def test_damaged_file(gguf_file: Make, tmp_path: Path) -> None:
    file, _ = gguf_file()
    file.write_bytes(file.read_bytes()[:-5000])
    assert "not a complete GGUF file" in refusal(file)
    file.write_bytes(b"GGUF")
    assert "not a complete GGUF file" in refusal(file)
    for begin in (b"", b"G"):
        file.write_bytes(begin)
        assert "not a complete GGUF file: it is cut short or damaged; download" in refusal(file)
    for begin in (b"x", b"PK\3\4" * 100):
        file.write_bytes(begin)
        assert "is no GGUF file: it does not begin with GGUF; download" in refusal(file)


def test_digits_and_whitespace_are_cut_as_the_file_says(gguf_file: Make) -> None:
    """transformers' conversion knows nothing of `smollm`: it would give "13" and two newlines."""
    file, _ = gguf_file()
    tokenizer = open_checkpoint(str(file)).tokenizer
    assert tokenizer.backend.encode("\n\n13 cats").tokens[:4] == ["ĊĊ", "1", "3", "Ġc"]

    plain, _ = gguf_file(metadata={"tokenizer.ggml.pre": "gpt-2"}, name="plain")
    tokenizer = open_checkpoint(str(plain)).tokenizer
    assert tokenizer.backend.encode("\n\n13 cats").tokens[:4] == ["Ċ", "Ċ", "13", "Ġc"]


def test_qwen_composes_accents(gguf_file: Make) -> None:
    file, _ = gguf_file("qwen2", metadata={"tokenizer.ggml.pre": "qwen2"})
    tokenizer = open_checkpoint(str(file)).tokenizer
    assert tokenizer.encode("e\N{COMBINING ACUTE ACCENT}") == tokenizer.encode("é")


@pytest.mark.parametrize(
    ("metadata", "bos"),
    [
        ({"tokenizer.ggml.add_bos_token": True}, 0),
        ({"tokenizer.ggml.add_bos_token": False}, None),
        ({"tokenizer.ggml.add_bos_token": None}, None),
        ({"tokenizer.ggml.add_bos_token": None, "tokenizer.ggml.pre": "llama-bpe"}, 0),
    ],
)
def test_bos(metadata: dict[str, Any], bos: int | None, gguf_file: Make) -> None:
    file, _ = gguf_file(metadata=metadata)
    assert open_checkpoint(str(file)).tokenizer.bos_id == bos


def test_special_tokens_and_chat_template(gguf_file: Make) -> None:
    file, _ = gguf_file(metadata={"tokenizer.chat_template": "{{ bos_token }}"})
    tokenizer = open_checkpoint(str(file)).tokenizer
    assert tokenizer.chat_template == "{{ bos_token }}"
    assert tokenizer.special_text == {"bos_token": "<s>", "eos_token": "</s>"}
    assert tokenizer.encode("<|turn|>a</s>") == [2, tokenizer.encode("a")[0], 1]


def test_sentencepiece_vocabulary(gguf_file: Make) -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "▁a", "▁ab"]
    kinds = [2, 3, 3] + [6] * 256 + [1] * 5
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [0.0] * 259 + [-5.0, -4.0, -3.0, -1.0, -2.0],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": None,
        "tokenizer.ggml.add_bos_token": None,
    }
    file, _ = gguf_file(metadata=metadata)
    checkpoint = open_checkpoint(str(file))
    tokenizer = checkpoint.tokenizer
    assert tokenizer.backend.encode("ab é", add_special_tokens=False).tokens == [
        "▁ab",
        "▁",
        "<0xC3>",
        "<0xA9>",
    ]
    assert tokenizer.decode(tokenizer.encode("ab é")) == "ab é"
    assert tokenizer.bos_id == 1  # what llama.cpp does when the file does not say
    assert checkpoint.spec.eos_ids == (2,)

    metadata["tokenizer.ggml.add_space_prefix"] = False
    unprefixed, _ = gguf_file(metadata=metadata, name="unprefixed")
    tokenizer = open_checkpoint(str(unprefixed)).tokenizer
    assert tokenizer.backend.encode("ab", add_special_tokens=False).tokens == ["a", "b"]
    assert tokenizer.decode(tokenizer.encode(" ab")) == " ab"
