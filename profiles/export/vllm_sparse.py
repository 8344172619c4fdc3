"""Drafting over a sparse cache in vLLM: the Vegas fork, and vllm RFC 47351.

Names as in these two; vLLM 0.33.0 has none of them, and refuses the method.
"""

from __future__ import annotations

import json
from typing import Any

from magicdec.engine.errors import ConfigError
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions, Export, wrong
from magicdec.profiles.export.vllm import KNOWN, NAME, REPLAY, read, replayed

ALGORITHMS = {"streaming": "streamingllm"}
LEAST = 256  # tokens: what the fork never goes below
MEMBERS = KNOWN | {"sparse_attn_algorithm", "sparse_attn_ratio", "sparse_attn_min_tokens"}


def render(plan: Plan, options: EngineOptions) -> Export:
    plan.speculates()
    drafter = plan.drafter
    algorithm = ALGORITHMS.get(drafter.selector or "")
    if algorithm is None or drafter.budget is None or drafter.kind != "self":
        raise ConfigError(
            f"the fork knows no drafter like {drafter.way}; "
            f"give --draft self --selector {' or '.join(ALGORITHMS)}"
        )
    contexts = sorted({cell.key.context for cell in plan.cells})
    if len(contexts) > 1:
        listed = ", ".join(map(str, contexts))
        raise ConfigError(
            f"a ratio of budget to context needs one context; give --context, one of {listed}"
        )
    gamma = plan.best()
    config: dict[str, Any] = {
        "method": "sparse_attn",
        "sparse_attn_algorithm": algorithm,
        "sparse_attn_ratio": round(min(1.0, drafter.budget / contexts[0]), 6),
        "sparse_attn_min_tokens": LEAST,
        "num_speculative_tokens": gamma,
    }
    notes = [
        "EXPERIMENTAL: method sparse_attn is the Vegas fork's and vllm RFC 47351's; no release "
        "has it",
        f"ratio: budget {drafter.budget} ÷ context {contexts[0]:,}; one γ for every batch",
    ]
    if options.replay:
        config |= replayed(plan, gamma)
        notes.append(REPLAY)
    return Export(json.dumps(config) + "\n", tuple(notes))


def check(text: str) -> None:
    """Raises ConfigError."""
    config = read(text, MEMBERS - {"model"}, "sparse_attn")
    if config.get("sparse_attn_algorithm") not in ALGORITHMS.values():
        raise wrong(NAME, f"sparse_attn_algorithm must be {', '.join(ALGORITHMS.values())}")
    ratio, least = config.get("sparse_attn_ratio"), config.get("sparse_attn_min_tokens")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise wrong(NAME, "sparse_attn_ratio must lie in (0, 1]")
    if isinstance(least, bool) or not isinstance(least, int) or least < 1:
        raise wrong(NAME, "sparse_attn_min_tokens must be an integer of at least 1")
