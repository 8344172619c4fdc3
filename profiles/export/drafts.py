"""What an engine can be told of a drafter, and what it cannot."""

from __future__ import annotations

from magicdec.engine.draft_spec import NO_TREE, DraftSpec
from magicdec.engine.errors import ConfigError
from magicdec.engine.selectors.streaming import Streaming
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions

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
