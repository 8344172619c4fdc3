"""One knob as a field: its value is stepped with [ and ], the wheel or a click, or typed."""

from __future__ import annotations

from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from magicdec.cli.tui.panels.base import Styled
from magicdec.cli.tui.stepping import TuiKnob

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
