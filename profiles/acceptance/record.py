"""A survey's figures, and its JSON document (schema `magicdec.survey/1`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magicdec.engine.report import RunReport
from magicdec.profiles.acceptance.intervals import LEVEL, length_interval
from magicdec.profiles.acceptance.rates import pooled
from magicdec.profiles.acceptance.survey import TRACE_GAMMA, Surveyed

SURVEY_SCHEMA = "magicdec.survey/1"
OF_DRAFTER = ("draft", "draft_kv", "selector", "selector_options", "budget")


@dataclass(frozen=True, slots=True)
class Estimate:
    """One drafter at one γ. rates: by position, of the steps that drafted it."""

    gamma: int
    length: float  # Ω, the mean acceptance length
    interval: tuple[float, float] | None
    rates: tuple[float, ...]


def estimates(result: Surveyed, gammas: Sequence[int]) -> list[Estimate]:
    found = []
    for gamma in gammas:
        walks = result.walks(gamma)
        both = pooled(walks)
        found.append(Estimate(gamma, both.mean_length, length_interval(walks), both.shares))
    return found


def survey_record(
    results: Sequence[Surveyed],
    gammas: Sequence[int],
    trace: RunReport,
    *,
    env: Mapping[str, object],
    config: Mapping[str, object],
    seconds: float,
    warnings: Sequence[str] = (),
    interrupted: bool = False,
    error: str | None = None,
) -> dict[str, Any]:
    """Names are those of `run --json` where they mean the same. trace: the one real run, with the
    first drafter of the widest budget."""
    return {
        "schema": SURVEY_SCHEMA,
        "interrupted": interrupted,
        "error": error,
        "env": dict(env),
        "config": dict(config),
        "warnings": list(warnings),
        "rows": [
            {
                "row": row.row, "document": row.document, "prompt_tokens": row.prompt_tokens,
                "tokens": len(row.token_ids), "finish_reason": row.finish_reason,
            }
            for row in trace.rows
        ],
        "trace": {
            "gamma": TRACE_GAMMA, "prefill_s": trace.phases.prefill,
            "decode_s": trace.decode_seconds,
            "mean_acceptance_length": trace.mean_acceptance_length,
        },
        "seconds": seconds,
        "confidence": LEVEL,
        "drafters": [_drafter(result, gammas) for result in results],
    }  # fmt: skip


def _drafter(result: Surveyed, gammas: Sequence[int]) -> dict[str, Any]:
    drafter = result.drafter
    return {
        **{name: drafter.json[name] for name in OF_DRAFTER},
        "draft_weights": result.weights,
        "alpha": result.alpha,
        "seconds": result.seconds,
        "by_gamma": [
            {
                "gamma": each.gamma,
                "mean_acceptance_length": each.length,
                "interval": list(each.interval) if each.interval else None,
                "acceptance_rate_per_position": list(each.rates),
            }
            for each in estimates(result, gammas)
        ],
    }
