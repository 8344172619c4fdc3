"""Panel 4: the settings of the next run, and what the cost model says of them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import Static

from magicdec.cli.bars import bar
from magicdec.cli.console import Symbols, plain_text
from magicdec.cli.knobs import Settings
from magicdec.cli.number_lines import ratio_text
from magicdec.cli.tui.forecast import Forecast
from magicdec.cli.tui.panels.base import Framed
from magicdec.cli.tui.panels.flow import Flow
from magicdec.cli.tui.panels.knob_field import KnobField
from magicdec.cli.tui.stepping import TuiKnob
from magicdec.cli.tui.view import View

GB = 1e9
MEMORY_BAR, GAP = 8, 3


class KnobsPanel(Framed):
    DEFAULT_CSS = """
    KnobsPanel { height: auto; layout: vertical;
        & > #preview { height: 2; width: 1fr; }
    }
    """

    key, title = "4", "next run"
    terms = (
        "B", "context", "budget", "γ", "γ auto, schedule", "γ adaptive", "self, lookup, layers:N",
        "cascade", "selector", "T", "draft weights", "new tokens", "tree", "nodes", "predicted",
        "break-even length", "step, predicted", "Ω", "memory needed", "rough", "assumed",
    )  # fmt: skip
    about = (
        "Tab goes from knob to knob, [ and ] change it, as do the wheel and a click on its ends; "
        "Enter lets you type a value or choose from a list. Behind the numbers of γ come adaptive "
        "and auto. Stepping passes over choices that the other knobs rule out; to choose one says "
        "why. The preview is the cost model's, before anything runs."
    )

    def __init__(self, knobs: Sequence[TuiKnob]) -> None:
        super().__init__()
        self._knobs = tuple(knobs)

    def compose(self) -> ComposeResult:
        with Flow():
            for knob in self._knobs:
                yield KnobField(knob)
        yield Static(id="preview", markup=False)

    @property
    def fields(self) -> list[KnobField]:
        return list(self.query(KnobField))

    def show(self, view: View) -> None:
        pass  # the knobs change with the keys, not with the engine

    def show_settings(self, settings: Settings, chosen: TuiKnob, preview: Text) -> None:
        for field in self.fields:
            field.show_value(field.knob.text(settings))
            field.apply(field.knob.applies(settings))
            field.choose(field.knob.name == chosen.name)
        self.query_one("#preview", Static).update(preview, layout=False)  # its size is fixed


def preview_lines(
    forecast: Forecast | None, reason: str, needed: float | None, room: int | None, width: int,
    look: Symbols,
) -> Text:  # fmt: skip
    """The predicted speedup and what it rests on; then memory and the times behind it."""
    first, second = [Text(plain_text(reason, look), "dim")], []
    if forecast is not None:
        ratio = Text.assemble(("preview ", "dim")).append_text(ratio_text(forecast.speedup, look))
        first = [ratio, Text(forecast.acceptance, "dim"), Text(_costs(forecast), "dim")]
        plain = forecast.times.plain
        omega = "len" if look.rule == "-" else "Ω"
        second = [
            _fact(omega, f"{forecast.omega:.2f}", f"break-even {forecast.break_even:.2f}"),
            _fact("step", f"{forecast.step * 1e3:.1f} ms", f"plain {plain * 1e3:.1f}"),
        ]
    if needed is not None and room:
        memory = [_memory(needed, room, look, barred) for barred in (True, False)]
        wanted = sum(fact.cell_len + GAP for fact in (memory[0], *second)) - GAP
        second.insert(0, memory[wanted > width])
    return Text("\n").join([_joined(first, width), _joined(second, width)])


def _joined(facts: Sequence[Text], width: int) -> Text:
    """As many facts as there is room for, none cut but the first where it must be."""
    line = Text(no_wrap=True, overflow="crop", end="")
    for fact in facts:
        gap = GAP if line else 0
        if not line or line.cell_len + gap + fact.cell_len <= width:
            line.append(" " * gap).append_text(fact)
    return line


def _fact(name: str, value: str, more: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, "bold"), (f", {more}", "dim"))


def _costs(forecast: Forecast) -> str:
    """Whose step times a forecast goes by."""
    if forecast.run is not None:
        return f"step times of run {forecast.run}"
    return f"rough costs of {forecast.hardware}" if forecast.rough else "calibrated costs"


def _memory(needed: float, room: int, look: Symbols, barred: bool) -> Text:
    share = needed / room
    style = "red" if share > 1 else "yellow" if share > 0.8 else "green"
    text = Text("memory ", "dim")
    if barred:
        text = Text.assemble(text, bar(share, MEMORY_BAR, style, look), " ")
    mark = f" {look.cross}" if share > 1 else ""
    return text.append(f"{needed / GB:.1f} of {room / GB:.1f} GB{mark}", "dim")
