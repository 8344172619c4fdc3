"""`magicdec drafters`: who can draft. A new way is a line here beside its name in the engine."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from magicdec.cli.commands import FormatOption
from magicdec.cli.tables import Cell, print_listing
from magicdec.engine.draft_spec import LAYERS, LOOKUP, SELF, UNDER_SELF

OF_A_MODEL = "--draft-kv, --selector, --budget, --draft-weights"


@dataclass(frozen=True, slots=True)
class Way:
    """`lossless`: whether the output is the target's; `takes`: the settings it has use for."""

    name: str  # of --draft
    drafts: str
    needs: str
    lossless: str
    takes: str


ONCE = "a selector that chooses once"
LOSSLESS = "yes"  # whoever drafts, the target verifies: greedy tokens equal, sampling exact
WAYS = (
    Way(SELF, "the model itself, over what the selector keeps of its KV cache", "nothing",
        LOSSLESS, OF_A_MODEL),
    Way(LOOKUP, "what followed the same 2 to 5 tokens earlier in the row's own text",
        "text that repeats itself or the document", LOSSLESS, "--gamma alone"),
    Way(f"{LAYERS}N", "the model's first N layers and its head, an early exit",
        "fewer layers than the model has", LOSSLESS, OF_A_MODEL),
    Way(f"{LOOKUP}{UNDER_SELF}", "a cascade: lookup drafts for the self-draft", ONCE,
        LOSSLESS, OF_A_MODEL),
    Way(f"{LAYERS}N{UNDER_SELF}", "a cascade: layers:N drafts for the self-draft",
        f"{ONCE}, fewer layers than the model has", LOSSLESS, OF_A_MODEL),
    Way("MODEL", "another model, with a KV cache of its own; full is standard speculative decoding",
        "the same vocabulary, memory for its weights and cache", LOSSLESS, OF_A_MODEL),
    Way(f"MODEL{UNDER_SELF}", "a cascade: another model drafts for the self-draft, over what the "
        "same selector and budget keep of a KV cache of its own",
        f"{ONCE}, the same vocabulary, memory for its weights and cache", LOSSLESS, OF_A_MODEL),
)  # fmt: skip


def drafters(format: FormatOption = "table") -> None:
    """List who can draft (--draft), with what each needs."""
    rows: list[list[Cell]] = [list(astuple(way)) for way in WAYS]
    print_listing([field.name for field in fields(Way)], rows, format)
