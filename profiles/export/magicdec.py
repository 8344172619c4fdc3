"""This program's own schedule of γ by batch and context, for `run --gamma FILE`."""

from __future__ import annotations

import shlex

from magicdec.engine.gamma.policy import Entry
from magicdec.profiles.export.plan import Plan, spans
from magicdec.profiles.export.settings import EngineOptions, Export
from magicdec.profiles.files.gamma_schedule import parse_schedule, schedule_text


def render(plan: Plan, options: EngineOptions) -> Export:
    """Unlike other engines, this one may well be told not to speculate."""
    contexts: list[int | None] = [*plan.contexts] or [None]
    firsts = [first for first, _ in spans(plan.contexts)] if plan.contexts else [1]
    entries = [
        Entry(batch_from, context_from, plan.best(batch, context))
        for batch, (batch_from, _) in zip(plan.batches, spans(plan.batches), strict=True)
        for context, context_from in zip(contexts, firsts, strict=True)
    ]
    if len({entry.gamma for entry in entries}) == 1:
        entries = [Entry(1, 1, entries[0].gamma)]
    flags, drawn = plan.drafter.flags, plan.drafter.temperature
    flags += ["--temperature", f"{drawn:g}"] if drawn else []
    notes = (
        f"for magicdec run --gamma FILE {shlex.join(flags)}",
        f"beyond batch {plan.batches[-1]} nothing was measured: its γ is used there",
    )
    return Export(schedule_text(entries), notes)


def check(text: str) -> list[str]:
    """Raises ConfigError."""
    parse_schedule(text)
    return []
