"""Dialogs: a message, a choice from a list, a line of text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from magicdec.engine.errors import ConfigError

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A frame in the middle of the screen; Escape leaves it with None."""

    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%; }
    Dialog > Vertical {
        width: 72; max-width: 96%; height: auto; max-height: 90%;
        border: round $accent; padding: 1 2; background: $surface;
        border-title-style: bold; border-subtitle-color: $foreground 60%;
    }
    Dialog.-error > Vertical { border: round $error; }
    Dialog:ansi > Vertical { border: round ansi_blue; }
    Dialog Static { width: 1fr; height: auto; }
    Dialog Input { margin: 1 0 0 0; border: none; height: 1; padding: 0 1; background: $boost; }
    Dialog OptionList { height: auto; max-height: 12; margin: 1 0 0 0; border: none;
        scrollbar-size: 1 1; background: transparent; padding: 0; }
    Dialog Input:focus, Dialog OptionList:focus { border: none; }
    Dialog .problem { color: $error; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "close")]
    hint = "esc closes"

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title, frame.border_subtitle = self._title, self.hint
            yield from self.parts()

    @abstractmethod
    def parts(self) -> ComposeResult:
        """What is in the frame."""

    def action_leave(self) -> None:
        self.dismiss(None)


class MessageDialog(Dialog[None]):
    """Something to read; an error has a frame of its own colour and says so in its title."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space,q", "leave", "close")]
    DEFAULT_CSS = """
    MessageDialog VerticalScroll { height: auto; max-height: 100%; scrollbar-size: 1 1; }
    """
    hint = "enter or esc closes"

    def __init__(self, title: str, text: RenderableType, *, error: bool = False) -> None:
        super().__init__(f"error: {title}" if error else title)
        self.text = text
        self.set_class(error, "-error")

    def parts(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self.text, markup=False)


class ChoiceDialog(Dialog[str]):
    """One of several texts, or another one where `other` says what may be typed."""

    hint = "enter takes it, esc leaves"

    def __init__(
        self, title: str, choices: Sequence[str], now: str, *, other: str = "", about: str = ""
    ) -> None:
        super().__init__(title)
        self._choices, self._now, self._other, self._about = list(choices), now, other, about

    def parts(self) -> ComposeResult:
        if self._about:
            yield Static(self._about, markup=False)
        yield OptionList(*(Text(choice) for choice in self._choices))
        if self._other:
            yield Input(placeholder=self._other)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        if self._now in self._choices:
            options.highlighted = self._choices.index(self._now)
        options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())


class LineDialog(Dialog[str]):
    """A line of text. `check` raises ConfigError for one that will not do."""

    hint = "enter goes on, esc leaves"

    def __init__(self, title: str, about: str, value: str, check: Callable[[str], object]) -> None:
        super().__init__(title)
        self._about, self._value, self._check = about, value, check

    def parts(self) -> ComposeResult:
        yield Static(self._about, markup=False)
        yield Input(self._value, select_on_focus=False)
        yield Static(classes="problem", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self._check(event.value)
        except ConfigError as error:
            self.query_one(".problem", Static).update(str(error))
            return
        self.dismiss(event.value)
