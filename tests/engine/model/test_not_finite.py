"""NaN and infinity end a run with one line that names the model, and never become text."""

from __future__ import annotations

import copy
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from magicdec.cli.main import run_command_line
from magicdec.engine.config import SamplingConfig
from magicdec.engine.errors import NotFiniteError
from magicdec.engine.model.decoder import Decoder
from magicdec.engine.model.finiteness import finite, require_finite


def damaged(tiny, value=math.nan, seed=0, name="model.layers.1.mlp.down_proj.weight", **changes):
    """A tiny model with one weight that is no number."""
    made = tiny(seed=seed, **changes)
    weights = {key: tensor.clone() for key, tensor in made.theirs.state_dict().items()}
    weights[name].view(-1)[5] = value
    spec, device = made.ours.spec, torch.device("cpu")
    return Decoder(spec, weights, device=device, dtype=torch.float32)


def test_finite_sees_every_kind_and_passes_the_largest_numbers() -> None:
    logits = torch.zeros(6, 3)
    for row, value in enumerate((math.nan, math.inf, -math.inf)):
        logits[row, 1] = value
    logits[3, 0], logits[3, 1] = math.inf, -math.inf
    logits[4] = torch.finfo(torch.float16).max
    assert finite(logits).tolist() == [False, False, False, False, True, True]
    assert finite(logits[4:].half()).all(), "a sum of halves must not overflow"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("gamma", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_model_without_numbers_ends_the_run(tiny, prompt, decode, value, gamma, temperature):
    with pytest.raises(NotFiniteError, match=r"^the model computes logits that are not finite"):
        decode(
            damaged(tiny, value), [prompt(40), prompt(23)], gamma=gamma, budget=16,
            max_new_tokens=12, sampling=SamplingConfig(temperature=temperature),
        )  # fmt: skip


@pytest.mark.parametrize("gamma", [0, 3])
def test_a_token_without_numbers_ends_the_run_where_it_is_fed(tiny, prompt, decode, gamma):
    settings = {"gamma": gamma, "budget": 16, "max_new_tokens": 24, "ignore_eos": True}
    text = decode(tiny().ours, [prompt(40)], **settings).tokens[0]
    at = next(i for i, t in enumerate(text) if i > 3 and t not in prompt(40) and t not in text[:i])
    broken = copy.copy(tiny().ours)
    broken._embedding = broken._embedding.clone()
    broken._embedding[text[at]] = math.nan
    with pytest.raises(NotFiniteError, match="the model"):
        decode(broken, [prompt(40)], **settings)
    whole = decode(broken, [prompt(40)], **settings | {"max_new_tokens": at + 1})
    assert whole.tokens[0] == text[: at + 1], "what comes before it is untouched"


@pytest.mark.parametrize("weights", ["same", "int8"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("attention", ["sdpa", "native"])
@pytest.mark.parametrize(
    ("draft", "settings", "who"),
    [
        ("other", {}, "draft model other"),
        ("other", {"draft_kv": "full"}, "draft model other"),
        ("other", {"selector": "streaming"}, "draft model other"),
        ("other", {"selector": "topk"}, "draft model other"),
        ("other+self", {}, "draft model other"),
    ],
)
def test_a_draft_without_numbers_is_named(
    tiny, prompt, decode, weights, temperature, attention, draft, settings, who
):
    with pytest.raises(NotFiniteError, match=f"^{who} computes logits") as caught:
        decode(
            tiny().ours, [prompt(60), prompt(33)], gamma=3, budget=16, max_new_tokens=12,
            draft=draft, draft_decoder=damaged(tiny, seed=1), attention=attention,
            draft_weights=weights,
            sampling=SamplingConfig(temperature=temperature), **settings,
        )  # fmt: skip
    assert "download or convert it again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_narrow_dtype_is_named_as_a_cause() -> None:
    with pytest.raises(NotFiniteError, match=r"too large for float16; .* or add --dtype float32"):
        require_finite([1, 0], "the model", torch.float16)
    require_finite([1, 1], "the model", torch.float16)


def test_the_command_line_ends_with_1_and_without_a_verdict(checkpoint, tmp_path, capsys):
    folder = tmp_path / "damaged"
    shutil.copytree(checkpoint, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"][3, 3] = math.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    document = tmp_path / "doc.txt"
    document.write_text("a text of some length, " * 12)
    asked = ["run", str(document), "--model", str(folder), "--context", "100", "--compare",
             "--max-new-tokens", "8", "--budget", "16", "--no-prefill-cache", "-q"]  # fmt: skip
    assert run_command_line(asked) == 1
    out, err = capsys.readouterr()
    assert "lossless" not in out
    assert err.count("\n") == 1
    assert err.startswith("magicdec: the model computes logits that are not finite")
