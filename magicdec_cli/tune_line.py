"""The command line that runs what was recommended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magicdec.cli.knobs import KNOBS, Settings
from magicdec.cli.shell_words import shell_line
from magicdec.cli.unused import idle_names
from magicdec.engine.draft_spec import NO_TREE
from magicdec.engine.text.documents import STDIN
from magicdec.profiles.tuning.candidate import Candidate, Place

DECIDED = (
    "batch", "context", "gamma", "tree", "tree_nodes", "draft", "draft_kv", "selector",
    "selector_option", "budget", "draft_weights",
)  # fmt: skip


def command_line(
    sources: Sequence[str], settings: Settings, place: Place, candidate: Candidate,
    *, ascii: bool = False,
) -> str:  # fmt: skip
    """`magicdec run` with what was decided, and every other setting that is not the default.

    ascii: see `shell_line`.
    """
    parts = ["magicdec", "run", *map(_argument, sources), "--batch", str(place.batch)]
    if settings.context is not None or place.context:
        parts += ["--context", str(place.context)]
    drafter = candidate.drafter
    if drafter is None:
        parts += ["--gamma", "0"]
    else:
        ahead = str(candidate.gamma) if drafter.fixed else drafter.gamma_policy
        parts += [*drafter.flags, "--gamma", ahead]
        if drafter.kind != "lookup":
            parts += ["--draft-weights", drafter.draft_weights]
    if drafter is not None and drafter.tree != NO_TREE:
        parts += ["--tree", drafter.tree, "--tree-nodes", str(drafter.tree_nodes)]
    elif settings.tree != NO_TREE:  # of the user's own settings, which the run will read, too
        parts += ["--tree", NO_TREE]
    decided: dict[str, Any] = {"batch": place.batch, "context": place.context, "gamma": 0}
    if drafter is not None:
        decided |= {
            "gamma": candidate.gamma, "draft": drafter.draft, "tree": drafter.tree,
            "draft_kv": drafter.draft_kv or settings.draft_kv,
            "selector": drafter.selector or settings.selector,
        }  # fmt: skip
    idle = idle_names(lambda name: (decided.get(name, getattr(settings, name)),), sources)
    for knob in KNOBS:
        value = getattr(settings, knob.name)
        if knob.name not in {*DECIDED, *idle} and value != knob.default:
            parts += _option(knob.flag, knob.key, value)
    return shell_line(parts, ascii=ascii)


def _argument(source: str) -> str:
    """No option, even where a file's name begins like one."""
    return f"./{source}" if source.startswith("-") and source != STDIN else source


def _option(flag: str, key: str, value: Any) -> list[str]:
    match value:
        case bool():
            return [flag if value else f"--no-{key}"]
        case tuple():
            return [part for item in value for part in (flag, str(item))]
        case dict():
            return [part for name, item in value.items() for part in (flag, f"{name}={item}")]
    return [flag, str(value)]
