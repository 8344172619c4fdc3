"""Records of runs as JSON-ready data.

Metric names are vLLM's. Its per-position rate divides by all drafts, which is
`acceptance_rate_per_position_of_all_drafts` here; `acceptance_rate_per_position` divides by
`drafted_per_position`, the drafts that went so far.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magicdec.engine.compare.verdict import Divergence, Losslessness
from magicdec.engine.events import PHASES, PhaseTimes
from magicdec.engine.report import RunReport, Tally

if TYPE_CHECKING:
    from magicdec.profiles.machine.steadiness import Steadiness

RUN_SCHEMA = "magicdec.run/1"


@dataclass(frozen=True, slots=True)
class Speedup:
    """Speculative against plain decoding of the same rows. None while either is unfinished."""

    decode: float | None
    end_to_end: float | None
    # Shared: the plain run did both first, and they count once on each side.
    prefill_s: float
    load_s: float
    draft_load_s: float  # what the speculative run loaded besides: its own

    @classmethod
    def of(cls, plain: RunReport, speculative: RunReport) -> Speedup:
        """Compares times for the same number of tokens; sampled rows may end at another one."""
        prefill, load, own = plain.phases.prefill, plain.phases.load, speculative.phases.load
        shared, after = load + prefill, speculative.decode_seconds
        comparable = plain.finished and speculative.finished
        if not (comparable and plain.decode_tokens and speculative.decode_tokens and after):
            return cls(None, None, prefill, load, own)
        before = plain.decode_seconds * speculative.decode_tokens / plain.decode_tokens
        whole = (shared + before) / (shared + own + after)
        return cls(before / after, whole, prefill, load, own)


def run_record(
    report: RunReport,
    *,
    env: Mapping[str, object],
    config: Mapping[str, object],
    interrupted: bool = False,
    error: str | None = None,
    warnings: Sequence[str] = (),
    baseline: RunReport | None = None,
    lossless: Losslessness | None = None,
    predicted: Mapping[str, Any] | None = None,
    gamma: Mapping[str, Any] | None = None,
    steadiness: Steadiness | None = None,
) -> dict[str, Any]:
    """The document of `run --json`. What was not measured is null, never 0.

    `error` is what ended the run early. With `baseline` (the plain run of --compare) come its
    numbers, the speedup and the verdict. `predicted` is what the calibration said of the run,
    `gamma` how γ was chosen, `steadiness` how far the machine disturbed the comparison.
    """
    record: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "interrupted": interrupted,
        "error": error,
        "env": dict(env),
        "config": dict(config),
        "warnings": list(warnings),
        "rows": _rows(report),
        "phases_s": _phases(report.phases),
        "speculative_decoding": {
            "num_spec_steps": report.num_spec_steps,
            "num_draft_tokens": report.num_draft_tokens,
            "num_accepted_draft_tokens": report.num_accepted_draft_tokens,
            "num_cut_draft_tokens": report.num_cut_draft_tokens,
            "num_spec_tokens": report.num_spec_tokens,
            "draft_acceptance_rate": report.acceptance_rate,
            "mean_acceptance_length": report.mean_acceptance_length,
            "acceptance_rate_per_position": list(report.acceptance_rate_per_position),
            "drafted_per_position": list(report.drafted_per_position),
            "accepted_per_position": list(report.accepted_per_position),
            "acceptance_rate_per_position_of_all_drafts": list(
                report.acceptance_rate_per_position_of_all
            ),
            "accepted_per_step": list(report.histogram),
            "siblings_tried": list(report.siblings_tried),
            "siblings_accepted": list(report.siblings_accepted),
            "draft_entries_read": report.draft_entries_read,
        },
        "prefill": _prefill(report),
        "decode": _decode(report),
        "predicted": predicted,
        "gamma": {
            **(gamma or {}),
            "mean": report.mean_gamma,
            "chosen": [dataclasses.asdict(choice) for choice in report.gamma_chosen],
        },
    }
    if report.inner is not None:
        record["inner_drafts"] = dataclasses.asdict(report.inner)
    if baseline is not None:
        speedup = Speedup.of(baseline, report)
        record["baseline"] = {
            "prefill": _prefill(baseline),
            "decode": _decode(baseline),
            "phases_s": _phases(baseline.phases),
            "rows": _rows(baseline),
        }
        spread = None
        if steadiness is not None and speedup.decode is not None:
            spread = steadiness.speedups(speedup.decode)
        record["speedup"] = {
            "decode": speedup.decode,
            "decode_range": None if spread is None else list(spread),
            "end_to_end": speedup.end_to_end,
            "shared_prefill_s": speedup.prefill_s,
            "shared_load_s": speedup.load_s,
            "draft_load_s": speedup.draft_load_s,
        }
        record["steadiness"] = None if steadiness is None else steadiness.to_json()
        record["lossless"] = _lossless(lossless)
    return record


def _rows(report: RunReport) -> list[dict[str, Any]]:
    return [
        {
            "row": row.row,
            "document": row.document,
            "prompt_tokens": row.prompt_tokens,
            "token_ids": list(row.token_ids),
            "text": row.text,
            "finish_reason": row.finish_reason,
            "steps": row.steps,
            "drafted": row.drafted,
            "accepted": row.accepted,
        }
        for row in report.rows
    ]


def _phases(phases: PhaseTimes) -> dict[str, float]:
    return {name: getattr(phases, name) for name in PHASES} | {"wall": phases.wall}


def _prefill(tally: Tally) -> dict[str, Any]:
    return {
        "prompt_tokens": tally.prompt_tokens,
        "reused_prompt_tokens": tally.reused_prompt_tokens,
        "seconds": tally.phases.prefill,
    }


def _decode(tally: Tally) -> dict[str, Any]:
    return {
        "steps": tally.steps,
        "tokens": tally.decode_tokens,
        "seconds": tally.decode_seconds,
        "tokens_per_s": tally.tokens_per_s,
        "tpot_ms": None if tally.tpot_s is None else tally.tpot_s * 1e3,
    }


def _lossless(verdict: Losslessness | None) -> dict[str, Any]:
    if verdict is None:
        return {
            "checked": False, "identical": None, "ok": None, "first_divergence": None,
            "divergences": [], "reason": "the run is not finished",
        }  # fmt: skip
    found = [_divergence(d) for d in sorted(verdict.divergences, key=lambda d: d.position)]
    return {
        "checked": verdict.checked,
        "identical": verdict.identical,
        "ok": verdict.ok,
        "first_divergence": found[0] if found else None,
        "divergences": found,
        "reason": verdict.reason,
    }


def _divergence(found: Divergence) -> dict[str, Any]:
    return {
        "row": found.row,
        "position": found.position,
        "plain_token": found.plain_token,
        "speculative_token": found.speculative_token,
        "gap": found.gap,
        "tolerance": found.tolerance,
        "tie": found.tie,
    }
