"""Drafting over a sparse cache in vLLM: the Vegas fork, and vllm RFC 47351.

Names and rules as in the fork (github.com/platformxlab/vegas, July 2026), which grew from vLLM
0.16; vLLM 0.33.0 has none of them, and refuses the method.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from magicdec.engine.errors import ConfigError
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.schema import Strict
from magicdec.profiles.export.settings import EngineOptions, Export, wrong
from magicdec.profiles.export.vllm import read
from magicdec.profiles.export.vllm_config import NAME, Positive

ALGORITHMS = {"streaming": "streamingllm"}
LEAST = 256  # tokens: the fork's default floor
FORK = f"{NAME}'s Vegas fork"


class Fork(Strict):
    """The members of its configuration that have a meaning for `sparse_attn`, or none at all."""

    method: Literal["sparse_attn"]
    num_speculative_tokens: Annotated[int, Field(gt=0)]
    sparse_attn_algorithm: Literal["streamingllm", "vegas"] = "streamingllm"
    sparse_attn_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.05
    sparse_attn_min_tokens: Positive = LEAST
    model: str | None = None
    tensor_parallel_size: int | None = None
    draft_tensor_parallel_size: Positive | None = None
    enforce_eager: bool | None = None
    quantization: str | None = None
    max_model_len: Positive | None = None
    revision: str | None = None
    code_revision: str | None = None
    disable_by_batch_size: Annotated[int, Field(ge=2)] | None = None
    disable_padded_drafter_batch: bool = False
    prompt_lookup_max: Positive | None = None
    prompt_lookup_min: Positive | None = None
    speculative_token_tree: str | None = None
    parallel_drafting: bool = False
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = 10_000
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1


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
    if options.replay:
        raise ConfigError("the fork replays no acceptance; leave out --replay, or give --to vllm")
    budget, context = drafter.budget, contexts[0]
    if budget >= context:
        raise ConfigError(
            f"budget {budget} is all of context {context}, and the fork wants a ratio below 1; "
            "choose another with --budget or --context"
        )
    config: dict[str, Any] = {
        "method": "sparse_attn",
        "sparse_attn_algorithm": algorithm,
        "sparse_attn_ratio": max(round(budget / context, 6), 1e-6),
        "sparse_attn_min_tokens": min(LEAST, budget),
        "num_speculative_tokens": plan.best(),
    }
    notes = [
        "EXPERIMENTAL: method sparse_attn is the Vegas fork's and vllm RFC 47351's; no release "
        "has it",
        f"ratio: budget {budget} ÷ context {context:,}; one γ for every batch",
        "the fork reads whole blocks of its cache, one of sinks and those of the recent tokens, "
        "and more of them as a row grows",
    ]
    if drafter.draft_weights != "same":
        notes.append(
            f"NOT EXPRESSED: {drafter.draft_weights} draft weights; the fork drafts with the "
            "model's own"
        )
    if budget < LEAST:
        notes.append(
            f"sparse_attn_min_tokens is lowered to {budget}: by its default the fork reads {LEAST} "
            "entries at the least"
        )
    return Export(json.dumps(config) + "\n", tuple(notes))


def check(text: str) -> list[str]:
    """Raises ConfigError for what the fork refuses."""
    config = read(text, Fork, FORK)
    if config.tensor_parallel_size is not None:
        raise wrong(FORK, "tensor_parallel_size is the target's")
    return []
