"""TensorRT-LLM's YAML: a draft model with γ by batch size.

As in `llmapi/llm_args.py` of its main branch (autumn 2026): `DraftTargetDecodingConfig`, told by
`decoding_type: Draft_Target`, and `draft_len_schedule`, whose smallest key must have
`max_draft_len`. Releases before these types were told apart by that name call it DraftTarget;
those that read the keys as lower bounds also want a key of 1.
"""

from __future__ import annotations

import json
from typing import Any

from magicdec.engine.errors import ConfigError
from magicdec.engine.harmless import shown
from magicdec.profiles.export.plan import Plan, Range
from magicdec.profiles.export.settings import EngineOptions, Export, wrong
from magicdec.profiles.export.vllm import REPLAY, is_count

NAME = "TensorRT-LLM"
UPPER = "upper bounds (newer releases, which stop speculating above the last)"
LOWER = "lower bounds (older releases)"
TYPES = ("Draft_Target", "DraftTarget")  # of newer and older releases
KNOWN = {
    "decoding_type", "max_draft_len", "speculative_model", "speculative_model_dir",
    "draft_len_schedule", "max_concurrency", "load_format", "acceptance_window",
    "acceptance_length_threshold", "max_total_draft_tokens", "use_rejection_sampling",
}  # fmt: skip


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


def check(text: str) -> None:
    """Raises ConfigError."""
    import yaml

    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise wrong(NAME, "the file is no YAML") from None
    spec: Any = config.get("speculative_config") if isinstance(config, dict) else None
    if not isinstance(spec, dict):
        raise wrong(NAME, "there is no speculative_config")
    if unknown := [name for name in spec if name not in KNOWN]:
        raise wrong(NAME, f"unknown member {shown(unknown[0])}")
    if spec.get("decoding_type") not in TYPES:
        raise wrong(NAME, f"decoding_type must be {TYPES[0]}, in older releases {TYPES[1]}")
    model = spec.get("speculative_model", spec.get("speculative_model_dir"))
    if not isinstance(model, str) or not model:
        raise wrong(NAME, "speculative_model must name a draft model")
    most = spec.get("max_draft_len")
    if not is_count(most) or most < 1:
        raise wrong(NAME, "max_draft_len must be an integer of at least 1")
    if "draft_len_schedule" in spec:
        if spec.get("max_concurrency") is not None:
            raise wrong(NAME, "draft_len_schedule and max_concurrency exclude each other")
        _check_schedule(spec["draft_len_schedule"], most)


def _check_schedule(schedule: Any, most: int) -> None:
    if not isinstance(schedule, dict) or not schedule:
        raise wrong(NAME, "draft_len_schedule must map batch sizes to draft lengths")
    for batch, gamma in schedule.items():
        if not is_count(batch) or batch < 1:
            raise wrong(NAME, f"a schedule key must be a batch size, got {shown(batch)}")
        if not is_count(gamma) or gamma > most:
            raise wrong(NAME, f"draft length {shown(gamma)} is not in 0..max_draft_len {most}")
    if schedule[min(schedule)] != most:
        raise wrong(NAME, "the smallest batch size must have max_draft_len")
