"""What stands beside every export: what was measured, where, and what does not transfer."""

from __future__ import annotations

from collections.abc import Iterator

from magicdec.profiles.export.drafts import drafted_by
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.storage.header import Header
from magicdec.profiles.storage.reading import disturbances

MOST = 24  # places that are listed


def header_notes(header: Header) -> Iterator[str]:
    env = header.environment
    where = env.get("device_name") or env.get("device") or "an unnamed device"
    count = env.get("threads")
    threads = f", {count} thread{'' if count == 1 else 's'}" if count else ""
    kv = "" if header.kv_dtype == header.dtype else f", KV {header.kv_dtype}"
    tool = f" by magicdec {header.tool}" if header.tool else ""
    when = f", {header.created}" if header.created else ""
    weights = f", weights {header.identity[:8]}" if header.identity else ""
    yield f"measured: {header.model} ({header.dtype}{kv}{weights}) on {where}{threads}{tool}{when}"
    names = [
        source.name + (f" ({source.tokens:,} tokens)" if source.tokens is not None else "")
        for source in header.documents
    ]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    yield f"workload: {', '.join(names[:3]) or 'unnamed'}{more}"


def plan_notes(plan: Plan) -> Iterator[str]:
    yield from header_notes(plan.header)
    acceptance = plan.acceptance
    rates = " ".join(f"{rate:.3f}" for rate in acceptance.falling)
    yield f"drafter: {drafted_by(plan)}"
    said = f"acceptance by position, unconditional, over {acceptance.steps:,} steps"
    yield f"{said}: {rates or 'not measured'}"
    yield (
        "transfers: acceptance, to the same model, text and drafter in any engine; for another "
        "drafter it is an assumption until it is measured there"
    )
    if plan.fixed is not None:
        yield f"γ {plan.fixed} was given, not chosen: whether it pays is not said here"
    elif plan.target is not None:
        yield f"γ was chosen from the step times in {plan.target} and the acceptance above"
    else:
        yield (
            "NOT TRANSFERABLE: γ was chosen from this machine's step times; another engine or "
            "machine has others. Give --target-timings FILE to choose from those"
        )
        repeats = min(len(cell.repeats) for cell in plan.cells)
        yield (
            f"every γ was timed {'once' if repeats == 1 else f'{repeats} times'}: the best of "
            "several noisy figures looks a little better than it is"
        )
    if plan.target is None:
        yield from disturbances(plan.cells)
    yield from plan.notes
    if plan.fixed is None:
        yield from _places(plan)


def _places(plan: Plan) -> Iterator[str]:
    if len(plan.contexts) > 1:
        yield (
            "without contexts in a format, a batch's γ is that of the least time per token over "
            "all of them (geometric mean); --context picks one"
        )
    verb = "forecast" if plan.target else "measured"
    places = sorted(plan.times, key=lambda place: (place[0], place[1] or 0))
    for batch, context in places[:MOST]:
        times = plan.times[batch, context]
        best = min(times, key=lambda gamma: (times[gamma], gamma))
        at = f"batch {batch}" + (f", context {context:,}" if context is not None else "")
        said = f"γ {best}, {verb} {1 / times[best]:.2f}×" if best else "do not speculate (γ 0)"
        tried = ", ".join(map(str, sorted(set(times) - {0})))
        yield f"{at}: {said}, of γ {tried}"
    if len(places) > MOST:
        yield f"and {len(places) - MOST} more places"
