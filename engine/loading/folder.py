"""A local folder as transformers' save_pretrained writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from magicdec.engine.errors import ModelError
from magicdec.engine.harmless import brief, shown
from magicdec.engine.loading.announced import as_announced
from magicdec.engine.loading.checkpoint import Checkpoint
from magicdec.engine.loading.config_values import check_values
from magicdec.engine.loading.files import one_line, read_json, read_json_if_any
from magicdec.engine.loading.generation import FILE, asked_of
from magicdec.engine.loading.layer_kinds import check_layers
from magicdec.engine.loading.quiet import quiet_transformers
from magicdec.engine.loading.tokenizer_files import read_tokenizer
from magicdec.engine.loading.weights import open_weights
from magicdec.engine.model.spec import READABLE, ModelSpec


def open_folder(name: str, folder: Path) -> Checkpoint:
    """Opens `folder`. Raises ModelError for what is missing, damaged or not supported."""
    config = read_json(folder / "config.json")
    spec = read_spec(folder, config)
    weights = open_weights(folder, spec)
    spec, notices = as_announced(folder, config, spec, weights)
    notices += tuple(_idle_ends(folder, spec, config))
    return Checkpoint(
        name=name,
        spec=spec,
        weights=weights,
        tokenizer=read_tokenizer(folder, spec.vocab_size),
        asked=asked_of(folder),
        notices=notices,
    )


def read_spec(folder: Path, config: dict[str, Any]) -> ModelSpec:
    """The specification that `folder`'s config.json, already read, describes."""
    _refuse(folder, config)
    check_values(folder / "config.json", config)
    from transformers import AutoConfig  # over a second to import; the refusals above do not wait

    try:
        with quiet_transformers():
            parsed = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        check_layers(folder, parsed)
        spec = ModelSpec.from_hf(parsed, _eos_ids(folder, config))
    except ModelError:
        raise
    except Exception as error:  # config classes validate with errors of many types
        raise ModelError(
            f"{folder / 'config.json'} cannot be used ({one_line(error)}); "
            "copy or download the model again"
        ) from None
    if (share := spec.rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(
            f"{folder} rotates only {share} of each head, which is not supported; "
            "choose a model with full rotary embeddings"
        )
    return spec


def _refuse(folder: Path, config: dict[str, Any]) -> None:
    kind = config.get("model_type")
    if kind not in READABLE:
        raise ModelError(
            f"architecture {kind!r} in {folder} is not supported; "
            f"choose a model of type {', '.join(READABLE)}"
        )
    causal = config.get("is_causal", True)
    if causal is False:
        raise ModelError(
            f"{folder} sees what follows each token (is_causal is false), so it cannot be decoded "
            "one token after the other; choose a causal model"
        )
    if causal is not True:  # transformers' attention implementations disagree, or fail
        raise ModelError(
            f"{folder / 'config.json'} has is_causal = {brief(causal, 60)} where true or false is "
            "needed; remove it where the model was trained to be causal"
        )
    if (quantized := config.get("quantization_config")) is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
        raise ModelError(
            f"weights in {folder} are quantized ({method}), which is supported only from .gguf "
            "files; choose the unquantized model"
        )
    if (activation := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise ModelError(
            f"activation {activation!r} in {folder} is not supported; choose a model with silu"
        )


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """generation_config.json knows best: chat models end a turn with other tokens than a text."""
    for source in (read_json_if_any(folder / FILE), config):
        ids = source.get("eos_token_id")
        if ids is not None:
            found = ids if isinstance(ids, list) else [ids]
            for id in found:
                if type(id) is not int:
                    raise ModelError(
                        f"{folder} has eos_token_id = {brief(ids, 60)} where a token's number or a "
                        "list of them is needed; copy or download the model again"
                    )
            return tuple(found)
    return ()


def _idle_ends(folder: Path, spec: ModelSpec, config: dict[str, Any]) -> Iterator[str]:
    """What the user should know of end-of-text tokens that no row can end with."""
    known = range(spec.vocab_size)
    idle = [id for id in spec.eos_ids if id not in known]
    named = [config.get("eos_token_id"), read_json_if_any(folder / FILE).get("eos_token_id")]
    if not idle and (spec.eos_ids or [] not in named):
        return
    which = f"{shown(idle[0])}, which is no token of its {spec.vocab_size:,}" if idle else "none"
    rest = "" if len(idle) < len(spec.eos_ids) else "; rows end at --max-new-tokens or --stop-token"
    yield f"{folder} names as end of text (eos_token_id) {which}{rest}"
