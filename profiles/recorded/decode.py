"""JSON data to a profile's header and cells: typed, bounded, and consistent in itself."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

from magicdec.engine.config import MAX_GAMMA, MAX_TREE_NODES
from magicdec.engine.draft_spec import FULL, LOOKUP, NO_TREE, SELF
from magicdec.engine.events import PHASES, PhaseTimes
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.untrusted import last_part, model_name
from magicdec.profiles.costs.step_times import NOT_MEASURED, Seen, StepTimes
from magicdec.profiles.files.json_fields import COUNT, Fields
from magicdec.profiles.machine.steadiness import Steadiness
from magicdec.profiles.recorded.header import Grid, Header, Source
from magicdec.profiles.recorded.schema import (
    STEP,
    Cell,
    CellKey,
    Predicted,
    Prefill,
    Repeat,
    Sample,
    Verdict,
)

MAX_REPEATS = 1000
MESSAGE = 1000  # characters of an error line
AGREE = 1e-6  # how near a written figure must be to the one computed from the counts


def header_from_json(value: object, where: str) -> Header:
    """Raises ConfigError. The schema is the caller's to check."""
    fields = Fields(value, where)
    workload = fields.inner("workload")
    return Header(
        created=fields.text("created"),
        tool=fields.text("tool"),
        environment=fields.scalars("environment"),
        model=model_name(fields.text("model")),
        dtype=fields.text("dtype"),
        kv_dtype=fields.text("kv_dtype"),
        documents=tuple(_source(part) for part in workload.objects("documents")),
        max_new_tokens=workload.maybe("max_new_tokens", workload.integer),
        conditions=workload.maybe("conditions", workload.scalars) or {},
        grid=_grid(fields.inner("grid")),
    )


def _source(fields: Fields) -> Source:
    return Source(
        last_part(fields.text("name")),
        fields.maybe("tokens", fields.integer),
        fields.maybe("sha256", fields.text),
    )


def _grid(fields: Fields) -> Grid:
    return Grid(
        batch=fields.integers("batch", low=1),
        context=fields.integers("context", low=1),
        selector=fields.texts("selector"),
        budget=fields.integers("budget", low=1),
        gamma=fields.integers("gamma"),
        temperature=fields.numbers("temperature"),
        draft_weights=fields.texts("draft_weights"),
        draft=fields.maybe("draft", fields.texts) or (),
        draft_kv=fields.maybe("draft_kv", fields.texts) or (),
        tree=fields.maybe("tree", fields.texts) or (),
        gamma_policy=fields.maybe("gamma_policy", fields.texts) or (),
    )


def cell_from_json(value: object, where: str) -> Cell:
    """Raises ConfigError for a value out of range, and for counts that contradict each other."""
    fields = Fields(value, where)
    key = key_from_json(fields.inner("key"))
    status: Literal["ok", "failed"]
    status = "ok" if fields.choice("status", "ok", "failed") == "ok" else "failed"
    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    counts = fields.maybe("speculative_decoding", fields.inner)
    if counts is not None:
        drafted = counts.integers("drafted_per_position", most=MAX_GAMMA)
        accepted = counts.integers("accepted_per_step", most=MAX_GAMMA + 1)
    predicted = fields.maybe("predicted", fields.inner)
    cell = Cell(
        key=key,
        draft_identity=fields.maybe("draft_identity", fields.text),
        status=status,
        error=fields.maybe("error", lambda name: fields.text(name, MESSAGE)),
        repeats=tuple(_repeat(part) for part in fields.objects("repeats", MAX_REPEATS)),
        drafted_per_position=drafted,
        accepted_per_step=accepted,
        step=_step(fields),
        peak_memory_bytes=fields.maybe("peak_memory_bytes", fields.integer),
        predicted=None if predicted is None else _predicted(predicted),
        prefill=fields.maybe("prefill", lambda name: _prefill(fields.inner(name))),
        lossless=_verdict(fields.inner("lossless")),
    )
    _check_counts(cell, fields)
    if counts is not None:
        _check_written(cell, counts)
    _check_speedup(cell, fields.inner("speedup"))
    if (gamma := fields.maybe("gamma", fields.inner)) is not None:
        _agree(gamma, "mean", cell.mean_gamma)
    return cell


def key_from_json(fields: Fields) -> CellKey:
    """Without `draft` the model drafts for itself, without `draft_kv` over a selection, without
    `tree` one token for a position, without `gamma_policy` as many tokens in every step."""
    draft = fields.maybe("draft", fields.text) or SELF
    kept = fields.maybe("draft_kv", lambda name: fields.choice(name, "selected", FULL))
    selector = None if draft == LOOKUP or kept == FULL else fields.text("selector")
    tree = fields.maybe("tree", fields.text) or NO_TREE
    policy = fields.maybe("gamma_policy", fields.text) or FIXED.name
    budgeted = selector not in (None, FULL)
    return CellKey(
        batch=fields.integer("batch", 1, 100_000),
        context=fields.integer("context", 1, 100_000_000),
        selector=selector,
        selector_options=tuple(sorted(fields.scalars("selector_options").items())),
        budget=fields.integer("budget", 1, 100_000_000) if budgeted else None,
        gamma=fields.integer("gamma", 1, MAX_GAMMA),
        temperature=fields.number("temperature", 0, 100),
        draft_weights=fields.text("draft_weights"),
        draft=draft,
        draft_kv=kept or "selected",
        tree=tree,
        tree_nodes=None if tree == NO_TREE else fields.integer("tree_nodes", 1, MAX_TREE_NODES),
        gamma_policy=policy,
    )


def _repeat(fields: Fields) -> Repeat:
    plain = fields.maybe("plain", fields.inner)
    steady = fields.maybe("steadiness", fields.inner)
    return Repeat(
        None if plain is None else _sample(plain),
        _sample(fields.inner("speculative")),
        None if steady is None else _steadiness(steady),
    )


def _steadiness(fields: Fields) -> Steadiness:
    return Steadiness(
        turns=fields.integer("turns"),
        paces=fields.numbers("paces"),
        plain_scatter=fields.maybe("plain_scatter", fields.number),
        speculative_scatter=fields.maybe("speculative_scatter", fields.number),
        others=fields.maybe("others", fields.number),
    )


def _sample(fields: Fields) -> Sample:
    phases = fields.inner("phases_s")
    return Sample(
        tokens=fields.integer("tokens"),
        seconds=fields.seconds("seconds"),
        steps=fields.integer("steps"),
        phases=PhaseTimes(*(_phase(phases, name) for name in PHASES)),
        num_spec_steps=fields.maybe("num_spec_steps", fields.integer),
        num_draft_tokens=fields.maybe("num_draft_tokens", fields.integer),
        num_accepted_draft_tokens=fields.maybe("num_accepted_draft_tokens", fields.integer),
        prefilled=fields.maybe("prefilled", fields.truth) is not False,
        row_steps=fields.maybe("row_steps", fields.integer),
        num_cut_draft_tokens=fields.maybe("num_cut_draft_tokens", fields.integer),
        num_spec_tokens=fields.maybe("num_spec_tokens", fields.integer),
    )


def _phase(phases: Fields, name: str) -> float:
    """Older files have no `load`: what there was of it is in `prefill`."""
    if name == "load":
        return phases.maybe(name, phases.seconds) or 0.0
    return phases.seconds(name)


def _step(fields: Fields) -> Seen:
    times = fields.maybe("step_s", fields.inner)
    if times is None:
        return NOT_MEASURED
    plain, draft, verify, select = (times.maybe(name, times.seconds) for name in STEP)
    return StepTimes(plain, draft, verify, select, None)


def _predicted(fields: Fields) -> Predicted:
    return Predicted(fields.maybe("speedup", fields.number), _step(fields))


def _prefill(fields: Fields) -> Prefill:
    tokens = fields.integer("prompt_tokens")
    return Prefill(fields.seconds("seconds"), tokens, fields.integer("reused_tokens", 0, tokens))


def _verdict(fields: Fields) -> Verdict:
    return Verdict(
        fields.truth("checked"),
        fields.maybe("identical", fields.truth),
        fields.maybe("ok", fields.truth),
        fields.maybe("reason", lambda name: fields.text(name, MESSAGE)) or "",
    )


def _check_counts(cell: Cell, fields: Fields) -> None:
    drafted, histogram = cell.drafted_per_position, cell.accepted_per_step
    steps = cell.num_spec_steps
    if steps > COUNT:
        raise fields.refuse("accepted_per_step counts more steps than can be")
    if len(drafted) > cell.key.gamma or len(histogram) > cell.key.gamma + 1:
        raise fields.refuse(f"draft positions beyond gamma {cell.key.gamma}")
    if any(later > earlier for earlier, later in pairwise(drafted)):
        raise fields.refuse("drafted_per_position rises from one position to the next")
    if (drafted[0] if drafted else 0) != steps:
        raise fields.refuse(
            f"accepted_per_step sums to {steps} steps, {drafted[0] if drafted else 0} drafted"
        )
    reached = zip(cell.accepted_per_position, drafted, strict=True)
    if any(accepted > drawn for accepted, drawn in reached) or any(histogram[len(drafted) + 1 :]):
        raise fields.refuse("a position was accepted more often than it was drafted")
    if cell.status == "ok" and not cell.repeats:
        raise fields.refuse("an ok cell needs a repeat")
    taken = cell.samples(lambda repeat: repeat.speculative.row_steps)
    if len(taken) == len(cell.repeats) > 0 and sum(taken) < steps:
        raise fields.refuse(f"row_steps sum to {sum(taken):g}, and {steps} of them drafted")
    accepted = cell.num_accepted_draft_tokens
    if not accepted <= cell.num_spec_tokens <= accepted + steps:
        raise fields.refuse(
            f"num_spec_tokens is {cell.num_spec_tokens}, of {steps} steps that accepted {accepted}"
        )
    for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens"):
        parts = [getattr(repeat.speculative, name) for repeat in cell.repeats]
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts) and sum(known) != getattr(cell, name):
            raise fields.refuse(
                f"{name} of the repeats sum to {sum(known)}, the counts say {getattr(cell, name)}"
            )


def _check_written(cell: Cell, counts: Fields) -> None:
    """Figures that other readers take as they are must follow from the counts."""
    pairs: Iterable[tuple[str, float | None]] = (
        ("num_spec_steps", cell.num_spec_steps),
        ("num_draft_tokens", cell.num_draft_tokens),
        ("num_accepted_draft_tokens", cell.num_accepted_draft_tokens),
        ("num_spec_tokens", cell.num_spec_tokens),
        ("draft_acceptance_rate", cell.acceptance_rate),
        ("mean_acceptance_length", cell.mean_acceptance_length),
    )
    for name, computed in pairs:
        _agree(counts, name, computed)
    written = counts.maybe("acceptance_rate_per_position", counts.numbers)
    rates = cell.acceptance_rate_per_position
    if written is not None and (len(written) != len(rates) or not all(map(_near, written, rates))):
        raise counts.refuse("acceptance_rate_per_position does not follow from the counts")


def _check_speedup(cell: Cell, speedup: Fields) -> None:
    _agree(speedup, "decode", cell.speedup)
    _agree(speedup, "end_to_end", cell.speedup_end_to_end)


def _agree(fields: Fields, name: str, computed: float | None) -> None:
    written = fields.maybe(name, lambda n: fields.number(n, high=1e300))
    if written is not None and (computed is None or not _near(written, computed)):
        raise fields.refuse(f"{name} is {written:g}, its samples give {computed or 0:g}")


def _near(written: float, computed: float) -> bool:
    return math.isclose(written, computed, rel_tol=AGREE, abs_tol=AGREE)
