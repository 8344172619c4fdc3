"""Panel 4: the settings of the next run, and what the cost model says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from magicdec.cli.output.console import Symbols, plain_text
from magicdec.cli.output.numbers import bar, ratio_text
from magicdec.cli.settings.knobs import Settings
from magicdec.cli.tui.forecast import Forecast
from magicdec.cli.tui.knobs import TuiKnob
from magicdec.cli.tui.panels.base import Flow, Framed, Styled
from magicdec.cli.tui.view import View

LONGEST = 12  # characters that may be typed


class KnobField(Widget, can_focus=True):
    DEFAULT_CSS = """
    KnobField { width: auto; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "edit", "type a value", show=False),
        Binding("left", "step(False)", "less", show=False),
        Binding("right", "step(True)", "more", show=False),
    ]

    class Stepped(Message):
        def __init__(self, knob: TuiKnob, up: bool) -> None:
            super().__init__()
            self.knob, self.up = knob, up

    class Typed(Message):
        def __init__(self, knob: TuiKnob, text: str) -> None:
            super().__init__()
            self.knob, self.text = knob, text

    class Opened(Message):
        """The knob's values shall be offered as a list."""

        def __init__(self, knob: TuiKnob) -> None:
            super().__init__()
            self.knob = knob

    class Reached(Message):
        """The field has the focus: [ and ] now mean this knob."""

        def __init__(self, knob: TuiKnob) -> None:
            super().__init__()
            self.knob = knob

    def __init__(self, knob: TuiKnob) -> None:
        super().__init__(id=f"knob-{knob.name}")
        self.knob = knob
        self._value = ""
        self._width = knob.width
        self._typed: str | None = None  # while a value is being typed
        self.chosen = False

    @property
    def editing(self) -> bool:
        return self._typed is not None

    def show_value(self, value: str) -> None:
        if value != self._value:
            self._value = value
            self.refresh(layout=len(value) > self._width)
            self._width = max(self._width, len(value))

    def apply(self, applies: bool) -> None:
        """Hides a knob that means nothing beside the others."""
        if applies != self.display:
            self.display = applies

    def choose(self, chosen: bool) -> None:
        if chosen != self.chosen:
            self.chosen = chosen
            self.refresh()

    def render(self) -> Text:
        less, more = ("<", ">") if self._plain else ("◂", "▸")
        shown = self._value if self._typed is None else self._typed + "_"
        style = "reverse" if self.has_focus else "bold"
        return Text.assemble(
            (f"{self.knob.label} ", "underline" if self.chosen else "dim"), (less, "dim"),
            (f"{shown:>{self._width}}", f"{style} underline" if self.editing else style),
            (more, "dim"), no_wrap=True,
        )  # fmt: skip

    def get_content_width(self, container: object, viewport: object) -> int:
        return len(self.knob.label) + 1 + self._width + 2

    @property
    def _plain(self) -> bool:
        return cast(Styled, self.app).look.rule == "-"

    def action_edit(self) -> None:
        if self.knob.numeric and self._typed is None:
            self._typed = ""
            self.refresh()
        elif not self.knob.numeric:
            self.post_message(self.Opened(self.knob))

    def action_step(self, up: bool) -> None:
        self.post_message(self.Stepped(self.knob, up))

    def on_focus(self) -> None:
        self.post_message(self.Reached(self.knob))

    def on_blur(self) -> None:
        self._finish()

    def on_key(self, event: events.Key) -> None:
        """While a value is typed, no key means anything else."""
        if self._typed is None:
            return
        if event.key in ("enter", "tab", "shift+tab"):
            self._finish()
            if event.key != "enter":
                return
        elif event.key == "escape":
            self._typed = None
        elif event.key == "backspace":
            self._typed = self._typed[:-1]
        elif event.is_printable and event.character and len(self._typed) < LONGEST:
            typed = self._typed + event.character
            self._typed = typed if self.knob.begins(typed) else self._typed
        event.stop()
        event.prevent_default()
        self.refresh()

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Letters and digits are a value's while one is typed, not the app's."""
        return self._typed is not None and character is not None and character.isprintable()

    def on_click(self, event: events.Click) -> None:
        less = len(self.knob.label) + 1
        if event.x == less:
            self.action_step(False)
        elif event.x >= less + 1 + self._width:
            self.action_step(True)
        elif event.x > less:
            self.action_edit()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_step(True)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_step(False)

    def _finish(self) -> None:
        typed, self._typed = self._typed, None
        if typed:
            self.post_message(self.Typed(self.knob, typed))
        self.refresh()


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
