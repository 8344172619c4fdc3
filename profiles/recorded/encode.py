"""A profile's lines as JSON-ready data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from magicdec.engine.draft_spec import stored_policy, who_is
from magicdec.engine.events import PHASES
from magicdec.profiles.costs.step_times import Seen
from magicdec.profiles.recorded.header import Header
from magicdec.profiles.recorded.schema import SCHEMA, STEP, Cell, Predicted, Repeat, Sample, Verdict


def header_to_json(header: Header) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "created": header.created,
        "tool": header.tool,
        "environment": dict(header.environment),
        "model": header.model,
        "dtype": header.dtype,
        "kv_dtype": header.kv_dtype,
        "workload": {
            "documents": [asdict(source) for source in header.documents],
            "max_new_tokens": header.max_new_tokens,
            "conditions": dict(header.conditions),
        },
        "grid": {name: list(values) for name, values in asdict(header.grid).items()}
        | {
            "draft": [who_is(draft).stored for draft in header.grid.draft],
            "gamma_policy": list(map(stored_policy, header.grid.gamma_policy)),
        },
    }


def cell_to_json(cell: Cell) -> dict[str, Any]:
    """Names under `speculative_decoding` are those of `run --json`."""
    return {
        "key": cell.key.stored.json,
        "draft_identity": cell.draft_identity,
        "status": cell.status,
        "error": cell.error,
        "repeats": [_repeat(repeat) for repeat in cell.repeats],
        "speculative_decoding": {
            "num_spec_steps": cell.num_spec_steps,
            "num_draft_tokens": cell.num_draft_tokens,
            "num_accepted_draft_tokens": cell.num_accepted_draft_tokens,
            "num_spec_tokens": cell.num_spec_tokens,
            "draft_acceptance_rate": cell.acceptance_rate,
            "mean_acceptance_length": cell.mean_acceptance_length,
            "acceptance_rate_per_position": list(cell.acceptance_rate_per_position),
            "drafted_per_position": list(cell.drafted_per_position),
            "accepted_per_position": list(cell.accepted_per_position),
            "accepted_per_step": list(cell.accepted_per_step),
        }
        if cell.drafted
        else None,
        "gamma": {"mean": cell.mean_gamma},
        "step_s": _step(cell.step),
        "peak_memory_bytes": cell.peak_memory_bytes,
        "predicted": _predicted(cell.predicted),
        "prefill": None if cell.prefill is None else asdict(cell.prefill),
        "speedup": {"decode": cell.speedup, "end_to_end": cell.speedup_end_to_end},
        "lossless": _verdict(cell.lossless),
    }


def _repeat(repeat: Repeat) -> dict[str, Any]:
    return {
        "plain": None if repeat.plain is None else _sample(repeat.plain),
        "speculative": _sample(repeat.speculative),
        "steadiness": None if repeat.steadiness is None else repeat.steadiness.to_json(),
    }


def _sample(sample: Sample) -> dict[str, Any]:
    return {
        "tokens": sample.tokens,
        "seconds": sample.seconds,
        "steps": sample.steps,
        "phases_s": {name: getattr(sample.phases, name) for name in PHASES},
        "num_spec_steps": sample.num_spec_steps,
        "num_draft_tokens": sample.num_draft_tokens,
        "num_accepted_draft_tokens": sample.num_accepted_draft_tokens,
        "prefilled": sample.prefilled,
        "row_steps": sample.row_steps,
        "num_cut_draft_tokens": sample.num_cut_draft_tokens,
        "num_spec_tokens": sample.num_spec_tokens,
    }


def _predicted(predicted: Predicted | None) -> dict[str, Any] | None:
    if predicted is None:
        return None
    return {"speedup": predicted.speedup, "step_s": _step(predicted.step)}


def _step(step: Seen) -> dict[str, float | None]:
    return {name: getattr(step, name) for name in STEP}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return asdict(verdict)
