"""Checkpoints whose files and configuration disagree are read as transformers reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from magicdec.engine.config import DecodeConfig
from magicdec.engine.errors import ModelError
from magicdec.engine.events import RowFinished
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.session import open_session
from magicdec.engine.text.documents import Document

Weights = dict[str, torch.Tensor]
FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.fixture
def make(save: Callable[..., Path]) -> Callable[..., Path]:
    """A tiny model with changes of its configuration and its weights."""

    def made(
        config: Mapping[str, Any] | None = None, change: Callable[[Weights], Weights] | None = None,
        *, kind: str = "llama", **sizes: Any,
    ) -> Path:  # fmt: skip
        folder = save(kind, **sizes)
        path, file = folder / "config.json", folder / "model.safetensors"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(config or {})))
        if change is not None:
            save_file(change(load_file(file)), file, metadata={"format": "pt"})
        return folder

    return made


def logits_agree(folder: Path) -> tuple[bool, list[str]]:
    """Whether greedy text is transformers', and what the user is told."""
    session = open_session(str(folder), device="cpu")
    requests = session.requests(
        [Document("doc", "All the world is a stage, " * 4)], context=40, batch=1, raw=True
    )
    config = DecodeConfig(max_new_tokens=12, gamma=0, ignore_eos=True)
    ended = [e for e in session.run(requests, config, batch=1) if isinstance(e, RowFinished)]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([requests[0].tokens])
    model.generation_config.eos_token_id = None
    ids = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False
    )
    same = ended[0].token_ids == tuple(ids[0, -12:].tolist())
    return same, session.warnings(requests, config)


def with_bias(weights: Weights) -> Weights:
    return weights | {"model.layers.0.self_attn.o_proj.bias": torch.full((48,), 3.0)}


def with_norm(weights: Weights) -> Weights:
    return weights | {"model.layers.1.self_attn.q_norm.weight": torch.full((16,), 3.0)}


def with_layer(weights: Weights) -> Weights:
    extra = {"model.layers.2.mlp.up_proj.weight": torch.ones(64, 48), "score.weight": torch.ones(2)}
    return weights | extra


def with_inverse_frequencies(weights: Weights) -> Weights:
    """As old files have them; transformers says nothing of them either."""
    return weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}


def with_head(weights: Weights) -> Weights:
    return weights | {"lm_head.weight": weights["model.embed_tokens.weight"].flip(0).clone()}


def without_head(weights: Weights) -> Weights:
    return {name: tensor for name, tensor in bare(weights).items() if name != "lm_head.weight"}


def bare(weights: Weights) -> Weights:
    return {name.removeprefix("model."): tensor for name, tensor in weights.items()}


@pytest.mark.parametrize(
    ("config", "change", "tied", "said"),
    [
        ({}, with_bias, False, "o_proj.bias', which its configuration does not announce"),
        ({}, with_norm, False, "q_norm.weight', which its configuration does not announce"),
        ({}, with_head, True, "the stored one is used"),
        ({}, with_layer, False, "layers.2.mlp.up_proj.weight' and 1 more tensors, which its"),
        ({}, with_inverse_frequencies, False, ""),
        ({"sliding_window": 256}, None, False, ""),  # as wide as what the model was trained for
        ({"sliding_window": 4, "layer_types": [FULL] * 2}, None, False, ""),
        ({}, bare, True, ""),
        ({}, bare, False, ""),
    ],
)
def test_what_disagrees_is_read_as_transformers_does(make, config, change, tied, said) -> None:
    same, warnings = logits_agree(make(config, change, tie_word_embeddings=tied))
    assert same
    assert any(said in line for line in warnings) if said else not warnings


@pytest.mark.parametrize("kind", ["mistral", "ministral"])
@pytest.mark.parametrize("cut", [None, 4])
@pytest.mark.parametrize("kinds", [None, [FULL] * 2, [FULL, SLIDING], [SLIDING] * 2])
def test_a_mistral_that_lists_its_layers_is_read_as_transformers_does(
    make, kinds, cut, kind
) -> None:
    """Which calls it another architecture then, that computes the same; a file may, too."""
    config = {"sliding_window": cut, "layer_types": kinds}
    folder = make(config, kind=kind)
    if cut is None and SLIDING in (kinds or ()):
        with pytest.raises(ModelError, match="says no window for them"):
            open_checkpoint(str(folder))
        return
    spec = open_checkpoint(str(folder)).spec
    listed = kinds or [SLIDING] * 2  # without a window they see all
    assert spec.model_type == "mistral"
    assert spec.windows == tuple(cut if kind == SLIDING else None for kind in listed)
    if cut is not None:  # transformers' class fails without a window, though no layer needs one
        same, warnings = logits_agree(folder)
        assert same and not warnings


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (None, ""),  # a base model that ends nowhere, as transformers has it
        ([2], ""),
        ([], "names as end of text (eos_token_id) none; rows end at"),
        (9999, "(eos_token_id) 9999, which is no token of its {}; rows end at"),
        (-1, "(eos_token_id) -1, which is no token of its {}; rows end at"),
        ([2, 9999], "(eos_token_id) 9999, which is no token of its {}"),
    ],
)
def test_ends_that_no_row_reaches_are_said(make, ids, said) -> None:
    folder = make({"eos_token_id": ids})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    opened = open_checkpoint(str(folder))
    said = said.format(opened.spec.vocab_size)
    assert [said in line for line in opened.notices] == ([True] if said else [])


@pytest.mark.parametrize("flag", ["attention_bias", "mlp_bias"])
def test_announced_biases_are_used_and_needed(make, flag) -> None:
    def fill(weights: Weights) -> Weights:
        return {n: t + 0.5 if n.endswith(".bias") else t for n, t in weights.items()}

    same, warnings = logits_agree(make({}, fill, **{flag: True}))
    assert same and not warnings
    with pytest.raises(ModelError, match=r"lacks tensor .*bias"):
        open_checkpoint(str(make({flag: True})))


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        ("llama", {"is_causal": False}, "is_causal is false"),
        ("llama", {"is_causal": None}, "is_causal = None where true or false"),
        ("qwen3", {"is_causal": 0}, "is_causal = 0 where true or false"),
        ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
        ("mistral", {"sliding_window": 0, "layer_types": [FULL, SLIDING]}, "sliding_window is 0"),
        ("llama", {"sliding_window": "4"}, "sliding_window = '4' where a number of tokens"),
        ("mistral", {"sliding_window": -1}, "sliding_window is -1"),
        # transformers' generate and its forward disagree, or it fails:
        ("llama", {"sliding_window": 4}, "sets sliding_window 4 in a llama model"),
        ("llama", {"sliding_window": 4, "layer_types": [SLIDING, FULL]}, "sets sliding_window 4"),
        ("llama", {"layer_types": [SLIDING, FULL]}, "says no window for them"),
        ("qwen2", {"layer_types": [SLIDING, FULL], "sliding_window": 8}, "says no window for them"),
        ("qwen3", {"layer_types": [FULL, "chunked_attention"]}, "layers of 'chunked_attention'"),
        ("llama", {"num_attention_heads": 8}, "for 8 heads and 2 KV heads of 16"),
        ("llama", {"num_key_value_heads": 3}, "4 heads do not share 3 KV heads evenly"),
    ],
)
def test_what_cannot_be_decoded_is_refused_with_its_reason(make, kind, config, said) -> None:
    with pytest.raises(ModelError) as error:
        open_checkpoint(str(make(config, kind=kind)))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_base_model_without_a_head_says_so(make) -> None:
    """transformers would make up a random one."""
    with pytest.raises(ModelError, match=r"is a base model: it has no head .*tie_word_embeddings"):
        open_checkpoint(str(make({}, without_head)))
    same, warnings = logits_agree(make({}, without_head, tie_word_embeddings=True))
    assert same and not warnings


ORIGINAL = "original_max_position_embeddings"


@pytest.mark.parametrize(
    ("scaling", "configured", "window"),
    [
        ({"rope_type": "yarn", "factor": 4.0, ORIGINAL: 64}, 64, 256),  # Qwen's recipe
        ({"rope_type": "yarn", "factor": 4.0}, 64, 256),
        ({"rope_type": "yarn", "factor": 4.0, ORIGINAL: 64}, 256, 256),  # is the scaled one
        ({"rope_type": "linear", "factor": 2.0}, 64, 128),
        ({"rope_type": "dynamic", "factor": 2.0}, 64, 128),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          ORIGINAL: 32}, 512, 512),  # llama 3.1 says more than 8 × original
        ({"rope_type": "default"}, 64, 64),
    ],
)  # fmt: skip
def test_the_trained_window_is_the_scaled_one(make, scaling, configured, window) -> None:
    folder = make(
        {"rope_parameters": scaling | {"rope_theta": 10000.0}}, max_position_embeddings=configured
    )
    assert open_checkpoint(str(folder)).spec.trained_window == window
    session = open_session(str(folder), device="cpu")
    text = Document("doc", "All the world is a stage, " * 80)
    for context, warned in ((window - 20, False), (window + 1, True)):
        requests = session.requests([text], context=context, batch=1, raw=True)
        warnings = session.warnings(requests, DecodeConfig(max_new_tokens=4, gamma=1))
        assert any("was trained for" in line for line in warnings) == warned
    draft = DecodeConfig(max_new_tokens=4, gamma=1, draft=str(folder))
    requests = session.requests([text], context=window - 20, batch=1, raw=True)
    assert not any("it sees the last" in line for line in session.warnings(requests, draft))
