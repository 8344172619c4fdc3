"""vLLM's `--speculative-config`: a draft model with γ by batch size, or prompt lookup.

Names, types and rules as in vLLM 0.33.0: `SpeculativeConfig`, and for the schedule
`validate_and_normalize_dynamic_sd_schedule`, which sorts the ranges, wants the first to begin at 1,
lets gaps and everything above the last inherit the K before, and cuts K to
`num_speculative_tokens`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeGuard

from magicdec.engine.config import LOOKUP_TOKENS
from magicdec.engine.harmless import shown
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions, Export, wrong
from magicdec.profiles.storage.reading import parse_json

NAME = "vLLM"
SCHEDULE = "num_speculative_tokens_per_batch_size"
RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
NGRAM, LOOKUPS = "ngram", ("prompt_lookup_min", "prompt_lookup_max")
SHARED = {"method", "num_speculative_tokens", SCHEDULE, "rejection_sample_method", RATES, LENGTH}
#: With what else a user may say of a draft model.
KNOWN = SHARED | {
    "model", "attention_backend", "code_revision", "disable_padded_drafter_batch",
    "draft_load_config", "draft_sample_method", "draft_tensor_parallel_size", "enforce_eager",
    "kv_cache_dtype", "max_model_len", "moe_backend", "parallel_drafting", "quantization",
    "revision", "tensor_parallel_size", "use_heterogeneous_vocab", "use_local_argmax_reduction",
}  # fmt: skip


SERVE = 'for vLLM (checked against 0.33.0): vllm serve MODEL --speculative-config "$(cat FILE)"'


def render(plan: Plan, options: EngineOptions) -> Export:
    plan.speculates()
    if plan.drafter.kind == "lookup":
        return _ngram(plan, options)
    parts = plan.schedule()
    most = max(part.gamma for part in parts)
    config: dict[str, Any] = {
        "method": "draft_model",
        "model": options.drafter("vllm"),
        "num_speculative_tokens": most,
    }
    notes = [SERVE]
    if plan.fixed is None:
        config[SCHEDULE] = [[part.first, part.last, part.gamma] for part in parts]
        notes.append(
            f"batches above {parts[-1].last} were not measured; vLLM keeps γ {parts[-1].gamma} "
            "there"
        )
    if options.replay:
        config |= replayed(plan, most)
        notes.append(REPLAY)
    return Export(json.dumps(config) + "\n", tuple(notes))


def _ngram(plan: Plan, options: EngineOptions) -> Export:
    """Prompt lookup, there as here: by the longest of so many tokens that occurred before."""
    gamma = plan.best() or max(part.gamma for part in plan.schedule())
    config: dict[str, Any] = {
        "method": NGRAM, "num_speculative_tokens": gamma,
        "prompt_lookup_min": LOOKUP_TOKENS[0], "prompt_lookup_max": LOOKUP_TOKENS[1],
    }  # fmt: skip
    notes = [SERVE]
    found = sorted({part.gamma for part in plan.schedule()})
    if len(found) > 1:
        notes.append(f"one γ for every batch: by batch the best γ are {found}")
    if options.replay:
        config |= replayed(plan, gamma)
        notes.append(REPLAY)
    return Export(json.dumps(config) + "\n", tuple(notes))


REPLAY = "replays the measured acceptance: for timing only, the generated text is worthless"


def replayed(plan: Plan, gamma: int) -> dict[str, Any]:
    rates = [round(rate, 6) for rate in plan.acceptance.rates[:gamma]]
    return {"rejection_sample_method": "synthetic", RATES: rates}


def check(text: str) -> None:
    """Raises ConfigError for what vLLM refuses."""
    config = parse_json(text, "the configuration")
    if isinstance(config, dict) and config.get("method") == NGRAM:
        _check_ngram(read(text, SHARED | {*LOOKUPS}, NGRAM))
        return
    config = read(text, KNOWN, "draft_model")
    if not isinstance(config.get("model"), str) or not config["model"]:
        raise wrong(NAME, "model must name a draft model")
    if SCHEDULE in config:
        check_ranges(config[SCHEDULE], config["num_speculative_tokens"])


def _check_ngram(config: dict[str, Any]) -> None:
    least, most = (config.get(name) for name in LOOKUPS)
    if not is_count(least) or not is_count(most) or not 1 <= least <= most:
        raise wrong(NAME, f"{' and '.join(LOOKUPS)} must be integers from 1, in that order")


def read(text: str, known: set[str], method: str) -> dict[str, Any]:
    """The members that every variant has. Raises ConfigError."""
    config = parse_json(text, "the configuration")
    if not isinstance(config, dict):
        raise wrong(NAME, "the configuration must be a JSON object")
    if unknown := sorted(set(config) - known):
        raise wrong(NAME, f"unknown member {shown(unknown[0])}")
    if config.get("method") != method:
        raise wrong(NAME, f"method must be {method!r}")
    most = config.get("num_speculative_tokens")
    if not is_count(most) or most < 1:
        raise wrong(NAME, "num_speculative_tokens must be an integer of at least 1")
    check_replay(config, most)
    return config


def check_replay(config: dict[str, Any], most: int) -> None:
    rates, length = config.get(RATES), config.get(LENGTH)
    given = (rates is not None) + (length is not None)
    if given != (config.get("rejection_sample_method") == "synthetic"):
        raise wrong(
            NAME, f"rejection_sample_method 'synthetic' goes with either {RATES} or {LENGTH}"
        )
    if length is not None and not (is_number(length) and 1 <= length <= most + 1):
        raise wrong(NAME, f"{LENGTH} must lie in 1..{most + 1}, got {shown(length)}")
    if rates is None:
        return
    if not isinstance(rates, list) or len(rates) != most:
        raise wrong(NAME, f"{RATES} must have {most} entries, one per position")
    check_rates(rates, NAME)


def check_rates(rates: Sequence[Any], engine: str) -> None:
    for rate in rates:
        if not is_number(rate) or not 0 <= rate <= 1:
            raise wrong(engine, f"acceptance rates lie in 0..1, got {shown(rate)}")
    if list(rates) != sorted(rates, reverse=True):
        raise wrong(engine, "acceptance rates must not rise from one position to the next")


def check_ranges(entries: Any, most: int) -> None:
    """[first, last, K]: lists in any order, from 1 on, without overlap. A K that vLLM would cut
    to num_speculative_tokens is refused as well: it is not what was meant."""
    if not isinstance(entries, list) or not entries:
        raise wrong(NAME, f"{SCHEDULE} must be a list of [first, last, K]")
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 3 or not all(map(is_count, entry)):
            raise wrong(NAME, f"an entry must be [first, last, K], got {shown(entry)}")
    end = 0
    for entry in sorted(entries):
        first, last, gamma = entry
        if end == 0 and first != 1:
            raise wrong(NAME, f"the first range must start at batch 1, got {first}")
        if first <= end:
            raise wrong(NAME, f"range {entry} overlaps the one before, which ends at {end}")
        if last < first:
            raise wrong(NAME, f"range {entry} ends before it starts")
        if gamma > most:
            raise wrong(NAME, f"K {gamma} exceeds num_speculative_tokens {most}")
        end = last


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
