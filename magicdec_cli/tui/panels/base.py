"""What all panels share: a frame with a title, a view to draw, a focus that shows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol, cast

from rich.text import Text
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from magicdec.cli.output.console import Symbols
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


GAP = 2  # columns between two neighbours


class FlowLayout(Layout):
    """For widgets that are one line high and know their width."""

    name = "flow"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        parent.pre_layout(self)
        placements = []
        x = y = 0
        for child in children:
            width = child.get_content_width(size, size)
            if x and x + width > size.width:
                x, y = 0, y + 1
            place = Region(x, y, width, 1)
            placements.append(WidgetPlacement(place, NULL_OFFSET, NULL_SPACING, child))
            x += width + GAP
        return placements


class Flow(Widget):
    DEFAULT_CSS = """
    Flow { width: 1fr; height: auto; }
    """

    @property
    def layout(self) -> Layout:
        return FlowLayout()
