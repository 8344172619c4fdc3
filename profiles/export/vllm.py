"""vLLM's `--speculative-config`: a draft model with γ by batch size, or prompt lookup.

The schedule's ranges begin at 1; gaps and everything above the last inherit the K before. What is
taken, and what not, is in `vllm_config`.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from magicdec.engine.config import LOOKUP_TOKENS
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.schema import Strict, read_members
from magicdec.profiles.export.settings import REPLAY, EngineOptions, Export
from magicdec.profiles.export.vllm_config import NAME, RATES, SCHEDULE, Speculative, check_rules
from magicdec.profiles.recorded.reader import parse_json

Config = TypeVar("Config", bound=Strict)
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
        "method": "ngram", "num_speculative_tokens": gamma,
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


def replayed(plan: Plan, gamma: int) -> dict[str, Any]:
    rates = [round(rate, 6) for rate in plan.acceptance.falling[:gamma]]
    return {"rejection_sample_method": "synthetic", RATES: rates}


def check(text: str) -> list[str]:
    """What vLLM reads otherwise than it is written. Raises ConfigError for what it refuses."""
    return check_rules(read(text, Speculative))


def read(text: str, kind: type[Config], engine: str = NAME) -> Config:
    """The members of a variant. Raises ConfigError."""
    config = parse_json(text, "the configuration")
    if isinstance(config, dict):  # as its command line does
        config = {name.replace("-", "_"): value for name, value in config.items()}
    return read_members(kind, config, engine)
