"""Help: the keys, or one panel with the definition of each of its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from magicdec.cli.output.console import Symbols
from magicdec.cli.output.terms import TERMS
from magicdec.cli.tui.panels.base import Framed

KEYS = (
    ("r", "run the settings"), ("x", "stop the run, within one step"),
    ("space", "pause the view; the run goes on"), ("[ ]", "the chosen knob down, up"),
    ("tab", "next knob; shift+tab: the one before"), ("enter", "type the knob's value"),
    ("c", "pin the shown run as baseline"), ("1-8", "go to a panel; again: back"),
    ("m", "maximise the panel, and back"), ("s", "sort the runs by the next column"),
    ("o", "explore: run one knob's values"), ("p", "measure plain decoding anew, then run"),
    ("t", "tune: let the tuner set the knobs"),
    ("e", "export runs or a picture"), ("d", "open other documents"),
    ("ctrl+p", "all commands"), ("?", "help of the panel in focus"), ("q", "quit"),
)  # fmt: skip


def panel_help(panel: Framed, look: Symbols) -> Text:
    """What the panel shows, then its terms."""
    text = Text(panel.about)
    for name in panel.terms:
        meaning = TERMS[name]
        text.append("\n\n").append(name, "bold").append(f"\n{meaning}")
    return in_ascii(text, look)


def in_ascii(text: Text, look: Symbols) -> Text:
    """The help's few symbols, for terminals without them."""
    if look.rule != "-":
        return text
    stand_ins = {"γ": "gamma", "α": "alpha", "Ω": "Omega", "±": "+-", "×": "x"}
    for symbol, word in stand_ins.items():
        parts = text.split(symbol, include_separator=False, allow_blank=True)
        text = Text(word).join(parts)
    return text


def keys_help(panels: Sequence[Framed]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for key, meaning in KEYS:
        grid.add_row(Text(key, "bold"), meaning)
    grid.add_row("", "")
    for panel in panels:
        if panel.key:
            grid.add_row(Text(panel.key, "bold"), panel.title)
    return grid
