"""The export formats by name, what engines can be told of a drafter, and the notes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol, cast

from magicdec.engine.draft_spec import NO_TREE, DraftSpec
from magicdec.engine.errors import ConfigError
from magicdec.engine.selectors.streaming import Streaming
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions, Export
from magicdec.profiles.recorded.header import Header
from magicdec.profiles.recorded.reader import disturbances

OWN = "magicdec"  # drafts like this itself; its notes say by which flags
#: Formats that know drafting without a model, or do not care who drafts.
LOOKUP_FORMATS = ("vllm", "aiconfigurator", OWN)
SPARSE = "vllm-sparse"  # drafts over a sparse cache of the model's own
PRICED = "aiconfigurator"  # names no drafter
ROLLING = {"streaming": Streaming.sinks, "window": 0}  # selectors, with their sinks by default


def expressed(plan: Plan, format: str, options: EngineOptions) -> list[str]:
    """Notes on what stays unsaid. Raises ConfigError where nothing of the drafter can be said."""
    drafter = plan.drafter
    if drafter.tree != NO_TREE:
        raise ConfigError(
            f"{format} settings made here cannot express a tree ({drafter.way}); --tree none "
            "chooses among the others"
        )
    if drafter.kind == "lookup" and format not in LOOKUP_FORMATS:
        raise ConfigError(
            f"{format} settings made here cannot express lookup, which drafts without a model; "
            f"give --to {', '.join(LOOKUP_FORMATS)}, or --draft self for another drafter"
        )
    if format == OWN:
        return []
    found = []
    if drafter.kind in ("self", "layers", "cascade") and format != SPARSE:
        found.append(f"NOT EXPRESSED: {_nowhere(drafter, format)}; {_instead(format)}")
    if drafter.kind == "model":
        if options.draft_model not in (None, drafter.draft):
            found.append(
                f"measured with the draft model {drafter.draft}, not {options.draft_model}"
            )
        if drafter.budget is not None:
            found.append(f"NOT EXPRESSED: the draft model's cache was bounded ({drafter.way})")
    if format == "sglang":
        found += _window(drafter)
    return found


def _nowhere(drafter: DraftSpec, format: str) -> str:
    if drafter.kind == "self":
        return f"{format} has no draft by the model itself over {drafter.label}"
    whose = " of the model itself" if drafter.kind == "layers" else ", a cascade"
    return f"no engine drafts by {drafter.draft}{whose}"


def _instead(format: str) -> str:
    if format == PRICED:
        return "it prices layers for multi-token prediction, with this acceptance"
    return "the drafter named here is another one"


def _window(drafter: DraftSpec) -> list[str]:
    """SGLang can bound the cache of the drafter that it has by sinks and a rolling window."""
    if drafter.selector not in ROLLING or drafter.budget is None:
        return []
    sinks = int(dict(drafter.selector_options).get("sinks", ROLLING[drafter.selector]) or 0)
    flags = f"--speculative-draft-window-size {max(drafter.budget - sinks, 1)}"
    flags += f" --speculative-draft-sink-size {sinks}" if sinks else ""
    honoured = (
        "EAGLE and MTP drafts on the Triton and FlashInfer backends honour both, Llama EAGLE-3 and "
        "DFLASH the window alone"
        if sinks
        else "EAGLE and MTP drafts on the Triton and FlashInfer backends, Llama EAGLE-3 and DFLASH "
        "honour it"
    )
    return [f"to bound that drafter's cache like the measured one's: {flags}; {honoured}"]


def drafted_by(plan: Plan) -> str:
    """Who drafted for whom, for a note."""
    drafter, model = plan.drafter, plan.header.model
    if drafter.kind == "self":
        return f"{model} for itself over {drafter.label}"
    return f"{drafter.label} for {model}"


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


FORMATS = ("vllm", "vllm-experimental", "vllm-sparse", "sglang", "tensorrt-llm", "llama.cpp",
           "aiconfigurator", "magicdec")  # fmt: skip


class Format(Protocol):
    """A module of this package."""

    def render(self, plan: Plan, options: EngineOptions) -> Export: ...

    def check(self, text: str) -> list[str]:
        """What the engine reads otherwise than it is written, or not at all. Raises ConfigError
        for a text that it would refuse."""


def format_named(name: str) -> Format:
    assert name in FORMATS
    module = name.replace("-", "_").replace(".", "_")
    return cast(Format, importlib.import_module(f"magicdec.profiles.export.{module}"))


def export(plan: Plan, name: str, options: EngineOptions) -> Export:
    """Renders, checks what was rendered, and adds what the numbers are worth."""
    format = format_named(name)
    unsaid = expressed(plan, name, options)
    if plan.drafter.kind == "model" and options.draft_model is None:
        options = replace(options, draft_model=plan.drafter.draft)
    made = format.render(plan, options)
    remarks = format.check(made.text)
    return Export(made.text, (*plan_notes(plan), *unsaid, *made.notes, *remarks))
