"""Panel 7: the text of the rows, with what the draft got right."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.row_text import ACCEPTED_STYLE, TARGET_STYLE
from magicdec.cli.tui.panels.base import Panel, faint
from magicdec.cli.tui.view import View


class TextPanel(Panel):
    key, title = "7", "text"
    terms = ("accepted", "recovered", "bonus")
    about = (
        "The end of each row's text. Green was drafted and accepted; bold was drawn by the target "
        "itself: the token it put where it rejected a draft token, or the bonus after a draft that "
        "was accepted whole. A space stands for any white space."
    )

    def on_mount(self) -> None:
        super().on_mount()
        legend = f"[{ACCEPTED_STYLE}]accepted[/]  [{TARGET_STYLE}]rejected: target's own[/]"
        self.border_subtitle = legend

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        state = view.texts
        if state is None or not state.rows:
            return [faint("no text yet")]
        shown = state.shown_rows(height)
        each, extra = divmod(height, len(shown))
        label = max(len(str(index)) for index, _ in shown)
        lines: list[Text] = []
        for place, (index, row) in enumerate(shown):
            room = each + (place < extra)
            found = row.text.lines(width - label - 1, room) or [Text()]
            for number, line in enumerate(found):
                mark = f"{index:>{label}} " if number == 0 else " " * (label + 1)
                style = "dim" if row.finish_reason else "cyan"
                lines.append(Text.assemble((mark, style), line, no_wrap=True))
        return lines
