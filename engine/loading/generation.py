"""Reads generation_config.json: what a model's authors ask of decoding, done when asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from magicdec.engine.config import SamplingConfig
from magicdec.engine.loading.files import read_json_if_any
from magicdec.engine.untrusted import clean, shown

FILE = "generation_config.json"

OFF = SamplingConfig()
#: Settings that `SamplingConfig` has, too, by the same names.
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
SAMPLED = ("temperature", "top_k", "top_p", "min_p")
#: Others that change what is generated, with the values that mean "off"; null always does.
OTHERS: Mapping[str, tuple[object, ...]] = {
    "no_repeat_ngram_size": (0,), "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,), "exponential_decay_length_penalty": (),
    "bad_words_ids": ([],), "force_words_ids": ([],), "constraints": ([],),
    "suppress_tokens": ([],), "begin_suppress_tokens": ([],), "sequence_bias": ([], {}),
    "forced_bos_token_id": (), "forced_eos_token_id": (), "min_length": (0,),
    "min_new_tokens": (0,), "num_beams": (1,), "num_beam_groups": (1,), "diversity_penalty": (0,),
    "penalty_alpha": (0,), "dola_layers": (), "guidance_scale": (1,), "watermarking_config": ({},),
    "remove_invalid_values": (False,), "token_healing": (False,), "stop_strings": ([], ""),
}  # fmt: skip
OTHERS_SAMPLED: Mapping[str, tuple[object, ...]] = {
    "typical_p": (1,),
    "top_h": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
}
INSTEAD = {"stop_strings": "--stop"}  # options of another name


def asked_of(folder: Path) -> dict[str, Any]:
    """What the folder's `generation_config.json` asks for that is not off, as it is written there:
    settings of sampling only where it asks for sampling. Raises ModelError for a damaged file."""
    given = read_json_if_any(folder / FILE)
    off = {name: (getattr(OFF, name),) for name in PENALTIES} | dict(OTHERS)
    if given.get("do_sample") is True:
        given = {"temperature": 1.0} | given
        off |= {name: (getattr(OFF, name),) for name in SAMPLED} | dict(OTHERS_SAMPLED)
    return {
        name: given[name]
        for name, neutral in off.items()
        if given.get(name) is not None and given[name] not in neutral
    }


def unheeded(name: str, asked: Mapping[str, Any], sampling: SamplingConfig) -> str:
    """What a run of model `name` leaves undone though nobody decided against it, and how to have
    it done; empty for nothing."""
    left = {
        setting: value
        for setting, value in asked.items()
        if getattr(sampling, setting, None) == getattr(OFF, setting, None)
    }
    if not left:
        return ""
    numbers = {
        setting: value
        for setting, value in left.items()
        if hasattr(OFF, setting) and isinstance(value, int | float)
    }
    options = [f"--{name.replace('_', '-')} {value:g}" for name, value in numbers.items()]
    options += [f"{INSTEAD[setting]} TEXT" for setting in left if setting in INSTEAD]
    none = [s for s in left if not hasattr(OFF, s) and s not in INSTEAD]
    advice = [f"add {' '.join(options)}"] if options else []
    advice += [f"there is no option for {', '.join(none)}"] if none else []
    values = ", ".join(f"{setting} {shown(value)}" for setting, value in left.items())
    return (
        f"{FILE} of {clean(name)} asks for {values}; unasked, this run does without, unlike "
        f"transformers: {'; '.join(advice)}"
    )
