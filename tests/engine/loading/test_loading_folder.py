"""Local folders: what opens, and every refusal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from magicdec.engine.errors import ModelError
from magicdec.engine.loading.open import open_checkpoint
from magicdec.engine.model.spec import SUPPORTED

Save = Callable[..., Path]


def edit(file: Path, **changes: Any) -> None:
    """Changes keys of a JSON file; None removes one."""
    data = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


def refusal(name: Path | str) -> str:
    """The message that opening ends with: one line, exit code 3."""
    with pytest.raises(ModelError) as caught:
        open_checkpoint(str(name))
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 3
    return message


@pytest.mark.parametrize("kind", SUPPORTED)
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_weights_equal_transformers(kind: str, shard: str, save: Save, tiny: Any) -> None:
    folder = save(kind, max_shard_size=shard)
    assert (folder / "model.safetensors").exists() == (shard == "5GB")
    checkpoint = open_checkpoint(str(folder))
    expected = tiny(kind).state_dict()
    assert set(checkpoint.weights) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(checkpoint.weights[name], tensor), name
    assert checkpoint.name == str(folder)
    assert checkpoint.spec.model_type == kind
    assert (checkpoint.spec.heads, checkpoint.spec.kv_heads) == (4, 2)


def test_optional_biases_and_windows(save: Save) -> None:
    folder = save("llama", attention_bias=True, mlp_bias=True)
    weights = open_checkpoint(str(folder)).weights
    assert "model.layers.1.self_attn.o_proj.bias" in weights
    assert "model.layers.0.mlp.down_proj.bias" in weights
    windowed = save("mistral", sliding_window=32)
    assert open_checkpoint(str(windowed)).spec.windows == (32, 32)


def test_tied_model_needs_no_head(save: Save) -> None:
    checkpoint = open_checkpoint(str(save("llama", tie_word_embeddings=True)))
    assert checkpoint.spec.tied
    assert "lm_head.weight" not in checkpoint.weights


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [(None, 1, (1,)), ([1, 2], 1, (1, 2)), (2, 1, (2,)), (None, [2, 1], (2, 1)), (None, None, ())],
)
def test_eos_ids(generation: Any, config: Any, expected: tuple[int, ...], save: Save) -> None:
    folder = save()
    edit(folder / "generation_config.json", eos_token_id=generation)
    edit(folder / "config.json", eos_token_id=config)
    assert open_checkpoint(str(folder)).spec.eos_ids == expected


def test_old_rope_scaling_spelling(save: Save) -> None:
    folder = save()
    edit(
        folder / "config.json",
        rope_parameters=None,
        rope_theta=5e5,
        rope_scaling={"type": "linear", "factor": 2.0},
    )
    rope = open_checkpoint(str(folder)).spec.rope
    assert (rope["rope_type"], rope["factor"], rope["rope_theta"]) == ("linear", 2.0, 5e5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gpt2"}, "'gpt2'"),
        ({"model_type": None}, "None"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"hidden_size": "wide"}, "hidden_size"),
        (
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0] * 8,
                    "long_factor": [2.0] * 8,
                    "factor": 2.0,
                    "original_max_position_embeddings": 128,
                }
            },
            "longrope",
        ),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "spiral"),
    ],
)
def test_unsupported_configurations(
    change: dict[str, Any], said: str, save: Save, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = save()
    edit(folder / "config.json", **change)
    capfd.readouterr()
    assert said in refusal(folder)
    assert capfd.readouterr() == ("", "")


def test_unsupported_architecture_lists_the_supported(save: Save) -> None:
    folder = save()
    edit(folder / "config.json", model_type="mamba")
    assert all(kind in refusal(folder) for kind in SUPPORTED)


def test_missing_and_damaged_files(save: Save) -> None:
    folder = save(max_shard_size="20KB")
    weights = folder / "model.safetensors.index.json"
    shard = folder / json.loads(weights.read_text())["weight_map"]["model.norm.weight"]

    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    assert f"{shard} is damaged" in refusal(folder)
    shard.write_bytes(b"")
    assert f"{shard} is damaged" in refusal(folder)
    shard.unlink()
    assert f"{shard} is missing" in refusal(folder)
    shard.write_bytes(whole)

    index = weights.read_text()
    weights.write_text("{}")
    assert "no weight_map" in refusal(folder)
    weights.unlink()
    assert "neither model.safetensors nor" in refusal(folder)
    weights.write_text(index)

    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in refusal(folder)
    (folder / "config.json").write_text("[]")
    assert "no JSON object" in refusal(folder)
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(folder)


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
def test_missing_and_misshapen_tensors(name: str, save: Save) -> None:
    folder = save()
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file({k: v for k, v in tensors.items() if k != name}, file)
    missing = "has no head" if name == "lm_head.weight" else f"lacks tensor '{name}'"
    assert missing in refusal(folder)
    save_file({**tensors, name: tensors[name][:-1].clone()}, file)
    assert f"tensor '{name}'" in refusal(folder)
    save_file({**tensors, name: tensors[name].to(torch.int8)}, file)
    assert "stored as I8" in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth"])
def test_pickles_are_refused_and_conversion_explained(name: str, save: Save) -> None:
    folder = save()
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"\x80")
    for opened in (folder, folder / name):
        message = refusal(opened)
        assert name in message
        assert "save_pretrained" in message


def test_names_that_are_no_model(tmp_path: Path, save: Save) -> None:
    assert "smollm2-135m" in refusal("no-such-model")
    assert "check the spelling" in refusal(tmp_path / "absent")
    assert "check the spelling" in refusal("a/b.gguf")
    folder = save()
    assert "give its folder" in refusal(folder / "model.safetensors")
    assert "no model file" in refusal(folder / "config.json")
    (folder / "model.safetensors").rename(folder / "model.gguf")
    assert str(folder / "model.gguf") in refusal(folder)


def test_tokenizer(save: Save) -> None:
    folder = save()
    tokenizer = open_checkpoint(str(folder)).tokenizer
    text = "thirteen cats: 13, on a line longer than eight tokens</s>"
    assert tokenizer.decode(tokenizer.encode(text), keep_special=True) == text
    assert len(tokenizer.encode(text)) > 8  # no truncation left
    assert tokenizer.special_text == {"bos_token": "<s>", "eos_token": "</s>"}
    assert tokenizer.chat_template is None
    assert tokenizer.bos_id == 0  # the post-processor adds it


@pytest.mark.parametrize("asked", [True, False, None])
@pytest.mark.parametrize("template", [True, False])
def test_bos_as_transformers_adds_it(asked: bool | None, template: bool, save: Save) -> None:
    from transformers import AutoTokenizer

    folder = save()
    edit(folder / "tokenizer_config.json", add_bos_token=asked)
    if not template:
        edit(folder / "tokenizer.json", post_processor=None)
    bos_id = open_checkpoint(str(folder)).tokenizer.bos_id
    theirs = AutoTokenizer.from_pretrained(folder)("a").input_ids
    assert [*([] if bos_id is None else [bos_id]), *theirs[-1:]] == theirs


def test_chat_template_sources(save: Save) -> None:
    folder = save()
    edit(folder / "tokenizer_config.json", chat_template="plain")
    assert open_checkpoint(str(folder)).tokenizer.chat_template == "plain"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "chat"}]
    edit(folder / "tokenizer_config.json", chat_template=named)
    assert open_checkpoint(str(folder)).tokenizer.chat_template == "chat"
    (folder / "chat_template.jinja").write_text("file")
    assert open_checkpoint(str(folder)).tokenizer.chat_template == "file"


def test_tokenizer_refusals(save: Save) -> None:
    folder = save()
    whole = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer.json cannot be read" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refusal(folder)
    (folder / "tokenizer.model").write_bytes(b"junk")
    assert "cannot be converted" in refusal(folder)

    larger = json.loads(whole)
    larger["model"]["vocab"] |= {f"word{i}": 1000 + i for i in range(100)}
    (folder / "tokenizer.json").write_text(json.dumps(larger))
    assert "copy the tokenizer files that belong to the model" in refusal(folder)


def test_tokenizer_without_tokenizer_json_goes_through_transformers(save: Save) -> None:
    folder = save("qwen2")
    fast = open_checkpoint(str(folder)).tokenizer
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    edit(folder / "tokenizer_config.json", tokenizer_class="Qwen2Tokenizer", bos_token=None)
    slow = open_checkpoint(str(folder)).tokenizer
    assert slow.encode("a cat") == fast.encode("a cat")
    assert slow.bos_id is None
    assert slow.special_text["eos_token"] == "</s>"


def test_weights_are_not_read_before_they_are_asked_for(save: Save) -> None:
    folder = save()
    checkpoint = open_checkpoint(str(folder))
    shutil.rmtree(folder)  # the open mapping outlives the name
    assert checkpoint.weights["model.norm.weight"].shape == (48,)
    with pytest.raises(KeyError):
        checkpoint.weights["absent"]
