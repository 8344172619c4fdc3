"""A cell as one flat row, for CSV, Markdown and spreadsheets. Names carry their units."""

from __future__ import annotations

from collections.abc import Sequence

from magicdec.engine.draft_spec import NO_TREE
from magicdec.profiles.costs.step_times import Seen
from magicdec.profiles.recorded.header import Scalar
from magicdec.profiles.recorded.schema import STEP, Cell


def flat(cell: Cell) -> dict[str, Scalar]:
    """The same columns for every cell; None is what was not measured."""
    key, step = cell.key, cell.step
    options = " ".join(f"{name}={value}" for name, value in key.selector_options)
    disturbed = sum(steady.disturbed for steady in cell.watched)
    rates = " ".join(f"{rate:.4f}" for rate in cell.acceptance_rate_per_position)
    return {
        "batch": key.batch,
        "context": key.context,
        "draft": key.draft,
        "draft_kv": key.draft_kv,
        "tree": None if key.tree == NO_TREE else f"{key.tree} {key.tree_nodes}",
        "selector": key.selector,
        "selector_options": options or None,
        "budget": key.budget,
        "gamma": key.gamma,
        "gamma_policy": None if key.fixed else key.gamma_policy,
        "mean_gamma": cell.mean_gamma,
        "temperature": key.temperature,
        "draft_weights": key.draft_weights,
        "status": cell.status,
        "repeats": len(cell.repeats),
        "tokens_per_s": cell.tokens_per_s,
        "plain_tokens_per_s": cell.plain_tokens_per_s,
        "speedup_decode": cell.speedup,
        "speedup_end_to_end": cell.speedup_end_to_end,
        "predicted_speedup": cell.predicted.speedup if cell.predicted else None,
        "draft_acceptance_rate": cell.acceptance_rate,
        "mean_acceptance_length": cell.mean_acceptance_length,
        "acceptance_rate_per_position": rates or None,
        "num_spec_steps": cell.num_spec_steps if cell.drafted else None,
        **_times(step),
        "prefill_s": cell.prefill.seconds if cell.prefill else None,
        "prefill_prompt_tokens": cell.prefill.prompt_tokens if cell.prefill else None,
        "prefill_reused_tokens": cell.prefill.reused_tokens if cell.prefill else None,
        "peak_memory_bytes": cell.peak_memory_bytes,
        "lossless": lossless_word(cell),
        "error": cell.error,
        "disturbed_repeats": disturbed if cell.watched else None,
        "others_cpu_share": cell.others,
    }


def flat_table(
    cells: Sequence[Cell], *, sparse: bool = True
) -> tuple[list[str], list[list[Scalar]]]:
    """Columns and rows of at least one cell. sparse: with the columns that are empty in every
    row, as programs like it; people do not."""
    rows = [flat(cell) for cell in cells]
    names = [name for name in rows[0] if sparse or any(row[name] is not None for row in rows)]
    return names, [[row[name] for name in names] for row in rows]


def lossless_word(cell: Cell) -> str:
    """identical, ties, failed or unchecked."""
    verdict = cell.lossless
    if not verdict.checked:
        return "unchecked"
    if verdict.identical:
        return "identical"
    return "ties" if verdict.ok else "failed"


def _times(step: Seen) -> dict[str, Scalar]:
    values = {name: getattr(step, name) for name in STEP}
    return {
        f"{name}_ms": None if value is None else round(value * 1e3, 6)
        for name, value in values.items()
    }
