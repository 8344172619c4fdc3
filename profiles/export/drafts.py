"""What an engine can be told of a drafter, and what it cannot."""

from __future__ import annotations

from magicdec.engine.errors import ConfigError
from magicdec.profiles.export.plan import Plan
from magicdec.profiles.export.settings import EngineOptions
from magicdec.profiles.storage.drafter import NO_TREE

OWN = "magicdec"  # drafts like this itself; its notes say by which flags
#: Formats that know drafting without a model, or do not care who drafts.
LOOKUP_FORMATS = ("vllm", "aiconfigurator", OWN)


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
    if drafter.kind in ("layers", "cascade"):
        whose = " of the model itself" if drafter.kind == "layers" else ", a cascade"
        return [
            f"NOT EXPRESSED: no engine drafts by {drafter.draft}{whose}; the drafter named here is "
            "another one"
        ]
    if drafter.kind != "model":
        return []
    found = []
    if options.draft_model not in (None, drafter.draft):
        found.append(f"measured with the draft model {drafter.draft}, not {options.draft_model}")
    if drafter.budget is not None:
        found.append(f"NOT EXPRESSED: the draft model's cache was bounded ({drafter.way})")
    return found


def drafted_by(plan: Plan) -> str:
    """Who drafted for whom, for a note."""
    drafter, model = plan.drafter, plan.header.model
    if drafter.kind == "self":
        return f"{model} for itself over {drafter.label}"
    return f"{drafter.label} for {model}"
