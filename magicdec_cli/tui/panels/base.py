"""What all panels share: a frame with a title, a view to draw, a focus that shows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol, cast

from rich.text import Text
from textual.widget import Widget

from magicdec.cli.console import Symbols
from magicdec.cli.tui.view import View


class Styled(Protocol):
    """What a panel asks of the app: the symbols that this terminal can show."""

    @property
    def look(self) -> Symbols: ...


class Framed(Widget):
    """A frame that gets the keyboard's focus. `key` is what goes there; empty: nothing does."""

    DEFAULT_CSS = """
    Framed {
        border: round $foreground 30%; border-title-style: bold; padding: 0 1;
        text-wrap: nowrap; text-overflow: clip;
        border-title-color: $foreground; border-subtitle-color: $foreground 60%;
        &:focus, &:focus-within { border: round $accent; border-title-style: bold reverse; }
    }
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    terms: ClassVar[Sequence[str]] = ()  # names in terms.TERMS
    about: ClassVar[str] = ""  # what the panel shows, for its help

    def on_mount(self) -> None:
        self.retitle()

    def retitle(self, more: str = "") -> None:
        title = f"{self.key} {self.title}".strip()
        self.border_title = f"{title} {more}".strip()

    @property
    def look(self) -> Symbols:
        return cast(Styled, self.app).look

    @abstractmethod
    def show(self, view: View) -> None:
        """Called with every new view, whether the panel is on the screen or not."""


class Panel(Framed, can_focus=True):
    """Draws lines of text from the view."""

    view: View | None = None

    def show(self, view: View) -> None:
        self.view = view
        if self.is_on_screen:
            self.refresh()

    @property
    def is_on_screen(self) -> bool:
        return bool(self.display) and self.size.width > 0

    def render(self) -> Text:
        width, height = self.size
        if self.view is None or width < 1 or height < 1:
            return Text("")
        lines = self.lines(self.view, width, height)[:height]
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    @abstractmethod
    def lines(self, view: View, width: int, height: int) -> list[Text]:
        """What the view says, in at most `height` lines of `width` columns."""


def faint(text: str) -> Text:
    return Text(text, "dim", no_wrap=True)


def fact(name: str, value: str, style: str = "bold", width: int = 0) -> Text:
    """A dim name and its value; `width` pads the name."""
    return Text.assemble((f"{name:<{width}} ", "dim"), (value, style), no_wrap=True)
