"""TensorRT-LLM's YAML: a draft model with γ by batch size.

As in `llmapi/llm_args.py` of its main branch (autumn 2026): `DraftTargetDecodingConfig`, told by
`decoding_type: Draft_Target`, and `draft_len_schedule`, whose smallest key must have
`max_draft_len`. Early releases call it DraftTarget; those that read the keys as lower bounds also
want a key of 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AliasChoices, Field

from magicdec.engine.errors import ConfigError
from magicdec.engine.untrusted import shown
from magicdec.profiles.export.plan import Plan, Range
from magicdec.profiles.export.schema import Strict, read_members
from magicdec.profiles.export.settings import REPLAY, EngineOptions, Export, wrong

NAME = "TensorRT-LLM"
Positive = Annotated[int, Field(ge=1)]
UPPER = "upper bounds (newer releases, which stop speculating above the last)"
LOWER = "lower bounds (older releases)"
TYPES = ("Draft_Target", "DraftTarget")  # of newer and older releases
OTHERS = ("AUTO", "DFlash", "DSpark", "Eagle", "Eagle3", "MTP", "NGram", "PARD", "SA", "SaveState",
          "User_Provided")  # fmt: skip
RENAMED = {
    "acceptance_window": "acceptance_rate_window_size",
    "acceptance_length_threshold": "acceptance_rate_threshold, a rate and no length",
}


def render(plan: Plan, options: EngineOptions) -> Export:
    """The schedule's first entry must be the longest, so longer ones behind it are cut to it."""
    plan.speculates()
    parts, notes = _descending(plan)
    most = parts[0].gamma
    notes.append(
        f"checked against TensorRT-LLM's main branch of autumn 2026; releases that refuse "
        f"{TYPES[0]} call it {TYPES[1]}"
    )
    model = json.dumps(options.drafter("tensorrt-llm"))  # a JSON string is a YAML string
    lines = [
        "speculative_config:",
        f"  decoding_type: {TYPES[0]}",
        f"  max_draft_len: {most}",
        f"  speculative_model: {model}",
    ]
    if plan.fixed is None:
        keys = [part.first if options.lower_keys else part.last for part in parts]
        entries = [f"{k}: {part.gamma}" for k, part in zip(keys, parts, strict=True)]
        meaning = LOWER if options.lower_keys else UPPER
        lines += [
            f"  # keys are {meaning}",
            f"  draft_len_schedule: {{{', '.join(entries)}}}",
        ]
        notes.append(f"draft_len_schedule: keys are {meaning}; --schedule-keys has the other")
    if options.replay:
        forced = plan.acceptance.length(most) - 1
        notes += [f"replay: TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={forced:.4g}", REPLAY]
    return Export("\n".join(lines) + "\n", tuple(notes))


def _descending(plan: Plan) -> tuple[list[Range], list[str]]:
    parts = plan.schedule()
    most = parts[0].gamma
    if most == 0:
        raise ConfigError(
            f"{NAME} wants the longest draft at the smallest batch, where plain decoding is best "
            "here; give --gamma N, or --batch N for one batch"
        )
    cut = [part for part in parts if part.gamma > most]
    notes = [
        f"batches {part.first} to {part.last}: γ {part.gamma} is best, but {NAME} allows none "
        f"above that of the smallest batch; cut to {most}"
        for part in cut
    ]
    return [Range(part.first, part.last, min(part.gamma, most)) for part in parts], notes


class DraftTarget(Strict):
    """`DraftTargetDecodingConfig`, with the members of `DecodingBaseConfig`."""

    decoding_type: Literal["Draft_Target"]
    max_draft_len: Positive
    max_total_draft_tokens: int | None = None
    speculative_model: Annotated[
        str | None,
        Field(validation_alias=AliasChoices("speculative_model", "speculative_model_dir")),
    ] = None
    max_concurrency: Positive | None = None
    draft_len_schedule: dict[int, int] | None = None
    load_format: str | None = None
    acceptance_rate_window_size: Annotated[int, Field(ge=0)] | None = None
    acceptance_rate_threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    use_rejection_sampling: bool = False
    allow_advanced_sampling: bool = False
    advanced_sampling_mode: Literal["full", "no_topk", "no_topp", "no_topk_no_topp"] = "full"
    enable_penalty: bool = False


def check(text: str) -> list[str]:
    """Raises ConfigError."""
    import yaml

    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise wrong(NAME, "the file is no YAML") from None
    if not isinstance(config, dict) or not isinstance(config.get("speculative_config"), dict):
        raise wrong(NAME, "there is no speculative_config")
    kind = config["speculative_config"].get("decoding_type")
    if kind in OTHERS:
        raise ConfigError(f"of {NAME} only {TYPES[0]} can be checked, not {kind}")
    spec = read_members(DraftTarget, config["speculative_config"], NAME, RENAMED)
    if not spec.speculative_model:
        raise wrong(NAME, "speculative_model must name a draft model")
    if spec.draft_len_schedule is not None:
        if spec.max_concurrency is not None:
            raise wrong(NAME, "draft_len_schedule and max_concurrency exclude each other")
        _check_schedule(spec.draft_len_schedule, spec.max_draft_len)
    return []


def _check_schedule(schedule: Mapping[int, int], most: int) -> None:
    if not schedule:
        raise wrong(NAME, "draft_len_schedule must map batch sizes to draft lengths")
    for batch, gamma in schedule.items():
        if batch < 1:
            raise wrong(NAME, f"a schedule key must be a batch size, got {shown(batch)}")
        if not 0 <= gamma <= most:
            raise wrong(NAME, f"draft length {shown(gamma)} is not in 0..max_draft_len {most}")
    if schedule[min(schedule)] != most:
        raise wrong(NAME, "the smallest batch size must have max_draft_len")
