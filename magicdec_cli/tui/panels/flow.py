"""Puts widgets beside each other, and goes on in a new line where there is no more room."""

from __future__ import annotations

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

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
