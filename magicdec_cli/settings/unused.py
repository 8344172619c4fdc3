"""Refuses options that mean nothing beside the others.

Only what the command line names is judged: files and variables hold settings for every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from magicdec.cli.settings.knobs import KNOBS
from magicdec.engine.draft_spec import LOOKUP
from magicdec.engine.errors import require
from magicdec.engine.text.ruler.names import PREFIX

Values = Callable[[str], Sequence[Any]]
#: But for what may have to be turned off where a file turned it on.
DRAFTING = tuple(
    knob.name for knob in KNOBS
    if knob.group == "Speculation" and knob.name not in ("gamma", "tree", "draft_kv")
)  # fmt: skip
OF_SELECTION = ("selector", "selector_option", "budget")


def refuse_unused(flags: Mapping[str, Any], values: Values, sources: Sequence[str]) -> None:
    """values: by a setting's name, all that it takes here; an option is refused only where none of
    them has a use for it. Raises ConfigError that names the options and what makes them idle."""
    given = {name for name, value in flags.items() if value not in (None, [])}
    for names, why in _idle(values, sources):
        _refuse([name.replace("_", "-") for name in names if name in given], why)


def idle_names(values: Values, sources: Sequence[str]) -> set[str]:
    """Settings that `refuse_unused` would refuse, whoever gave them."""
    return {name for names, _ in _idle(values, sources) for name in names}


def refuse_idle(given: Mapping[str, object], why: str) -> None:
    """The same for a command's own options, by name: those that are not None or False."""
    _refuse([name for name, value in given.items() if value not in (None, False)], why)


def _refuse(idle: Sequence[str], why: str) -> None:
    them = "it" if len(idle) == 1 else "them"
    require(not idle, f"{', '.join(idle)} would have no effect {why}; leave {them} out")


def _idle(values: Values, sources: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """Settings that have no effect, and where they have none."""
    if all(gamma == 0 for gamma in values("gamma")):
        yield DRAFTING, "with gamma 0, which drafts nothing"
    drafts, kept, trees = values("draft"), values("draft_kv"), values("tree")
    if all(draft == LOOKUP for draft in drafts):
        yield (
            (*OF_SELECTION, "draft_weights"),
            "with draft lookup, which reads no KV entries and no weights",
        )
    elif all(kind == "full" for kind in kept):
        yield OF_SELECTION, "with draft-kv full, which leaves nothing out"
    elif all(map(_is_whole, values("selector"))):
        yield ("budget",), f"with selector {values('selector')[0]}, which leaves nothing out"
    if all(tree == "none" for tree in trees):
        yield ("tree_nodes", "tree_rates"), "without a tree (--tree)"
    elif "sequoia" not in trees:
        yield ("tree_rates",), f"with tree {trees[0]}, whose branches are the draft's likeliest"
    generated = bool(sources) and all(source.startswith(PREFIX) for source in sources)
    if generated:
        yield (
            ("take", "rows"),
            "on generated texts, which are made to measure",
        )
    elif values("prompt") == (None,):
        yield ("raw",), "without --prompt: a chat template is for a question"
    if all(context is None for context in values("context")):
        yield ("take",), "without --context, which cuts documents"
    if max(values("batch")) <= len(sources):
        yield ("rows",), "where every document is one row (--batch makes more)"
    if values("prefill_cache") == (False,):
        yield ("prefill_cache_size",), "with --no-prefill-cache"
    if values("device") == ("cpu",):
        yield ("sync_phases",), "on a CPU, whose phases are timed as they are"


def _is_whole(selector: str) -> bool:
    from magicdec.engine.selection import SELECTORS

    return bool(SELECTORS.load(selector).whole)
