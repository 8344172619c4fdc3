"""The context window under RoPE scaling: what is warned about, and what a draft model sees."""

from __future__ import annotations

import json
import shutil

import pytest

from magicdec.engine.config import DecodeConfig
from magicdec.engine.memory.plan import DraftRoom
from magicdec.engine.model.spec import ModelSpec
from magicdec.engine.selection import SELECTORS
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import Document
from magicdec.profiles.costs.model import read_config

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
BEFORE = "original_max_position_embeddings"
# model type, max_position_embeddings, RoPE as its config.json has it, tokens
WINDOWS = {
    "unscaled": ("llama", 8192, {"rope_type": "default"}, 8192),
    "Qwen2.5's recipe": ("qwen2", 32768, {"type": "yarn", "factor": 4.0, BEFORE: 32768}, 131072),
    "YaRN, window raised": ("qwen2", 131072, {"rope_type": "yarn", "factor": 4.0, BEFORE: 32768},
                            131072),
    "Qwen3's recipe": ("qwen3", 40960, {"rope_type": "yarn", "factor": 4.0, BEFORE: 32768},
                       131072),
    "Qwen3, scaled by less than its window": (
        "qwen3", 40960, {"rope_type": "yarn", "factor": 1.2, BEFORE: 32768}, 40960),
    "YaRN of the whole": ("llama", 4096, {"rope_type": "yarn", "factor": 2.0}, 8192),
    "Llama 3.1": ("llama", 131072, {**LLAMA3, "factor": 8.0, BEFORE: 8192}, 131072),
    "Llama 3.2": ("llama", 131072, {**LLAMA3, "factor": 32.0, BEFORE: 8192}, 131072),
    "Llama 3, window not raised": ("llama", 8192, {**LLAMA3, "factor": 8.0, BEFORE: 8192}, 65536),
    "linear": ("llama", 4096, {"rope_type": "linear", "factor": 4}, 16384),
    "dynamic": ("llama", 2048, {"rope_type": "dynamic", "factor": 2.5}, 5120),
    "a factor of 1": ("llama", 2048, {"rope_type": "linear", "factor": 1.0}, 2048),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_by_configuration(name, tmp_path):
    from transformers import AutoConfig

    kind, most, rope, expected = WINDOWS[name]
    sizes = {
        "model_type": kind, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "head_dim": 16,
    }  # fmt: skip
    scaled = {**sizes, "max_position_embeddings": most, "rope_theta": 1e4, "rope_scaling": rope}
    (tmp_path / "config.json").write_text(json.dumps(scaled))
    spec = ModelSpec.from_hf(AutoConfig.from_pretrained(tmp_path))
    assert spec.trained_window == expected
    assert spec.max_position == most  # what frequencies are computed with stays
    assert read_config(tmp_path / "config.json").max_position == expected


YARN = {"rope_type": "yarn", "factor": 4.0, BEFORE: 96}


def test_a_draft_with_scaling_sees_the_whole_prompt(tiny):
    config = DecodeConfig(max_new_tokens=60, draft="other", gamma=3)
    selector = SELECTORS.create("window")
    short = tiny("llama", max_position_embeddings=96).ours.spec
    scaled = tiny("llama", max_position_embeddings=96, rope=tuple(YARN.items())).ours.spec
    assert DraftRoom.of(short, selector, config, rows=1, context=300).prompt < 96
    assert DraftRoom.of(scaled, selector, config, rows=1, context=300).prompt == 300


def test_a_run_inside_the_scaled_window_is_not_warned_about(tmp_path, checkpoint):
    folder = shutil.copytree(checkpoint, tmp_path / "scaled")
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 96, "rope_parameters": {"rope_theta": 1e4, **YARN}}
    (folder / "config.json").write_text(json.dumps(config))
    session = open_session(str(folder), device="cpu", attention="sdpa")
    for length, said in ((300, False), (383, True)):
        requests = session.requests([Document("doc", "x" * length)], context=None, batch=1)
        warnings = session.warnings(requests, DecodeConfig(max_new_tokens=2))
        assert any("beyond the 384 tokens" in warning for warning in warnings) == said
