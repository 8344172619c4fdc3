"""Panel 7: the text of the rows, with what the draft got right and wrong."""

from __future__ import annotations

import textwrap

from rich.text import Text

from magicdec.cli.output.console import Symbols, plain_text, printable
from magicdec.cli.output.live_state import RowState
from magicdec.cli.output.numbers import clock
from magicdec.cli.output.row_text import ACCEPTED_STYLE, TARGET_STYLE
from magicdec.cli.tui.panels.base import Panel, faint
from magicdec.cli.tui.view import View

REJECTED_STYLE = "red strike"


class TextPanel(Panel):
    key, title = "7", "text"
    terms = ("accepted", "rejected", "recovered", "bonus")
    about = (
        "The end of each row's text. Green was drafted and accepted; bold was drawn by the target "
        "itself: the token it put where it rejected a draft token, or the bonus after a draft that "
        "was accepted whole. Struck out behind a cross, until the next step: what the draft had "
        "said in place of the last bold token. A space stands for any white space."
    )

    def on_mount(self) -> None:
        super().on_mount()
        self.border_subtitle = (
            f"[{ACCEPTED_STYLE}]accepted[/]  [{TARGET_STYLE}]target's own[/]  "
            f"[dim]{_cross(self.look)}[/] [{REJECTED_STYLE}]rejected[/]"
        )

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        state = view.texts
        if state is None or not state.rows:
            return [faint("no text yet")]
        shown = state.shown_rows(height)
        each, extra = divmod(height, len(shown))
        label = max(len(str(index)) for index, _ in shown)
        lines: list[Text] = []
        for place, (index, row) in enumerate(shown):
            found = row_lines(row, width - label - 1, each + (place < extra), self.look)
            for number, line in enumerate(found):
                mark = f"{index:>{label}} " if number == 0 else " " * (label + 1)
                style = "dim" if row.finish_reason else "cyan"
                lines.append(Text.assemble((mark, style), line, no_wrap=True))
        return lines


def row_lines(row: RowState, width: int, room: int, look: Symbols) -> list[Text]:
    """The last `room` lines, with what was rejected behind them; that is cut where it must be."""
    lines = row.text.lines(width, room) or [Text()]
    said = " ".join(printable(row.rejected).split())
    if not said or row.finish_reason:
        return lines
    mark = f" {_cross(look)} "
    if lines[-1].cell_len + len(mark) >= width and room > 1:
        lines = [*lines[-(room - 1) :], Text()]
    left = width - lines[-1].cell_len - len(mark)
    if left > 0:
        struck = Text(said, REJECTED_STYLE)
        struck.truncate(left)
        lines[-1] = Text.assemble(lines[-1], (mark, "dim"), struck, no_wrap=True)
    return lines


def _cross(look: Symbols) -> str:
    return "x" if look.rule == "-" else look.cross


STYLES = {"": "", "warning": "yellow", "error": "bold red"}
AT = 7  # columns of the time


class LogPanel(Panel):
    key, title = "8", "log"
    about = "What happened since the app started, the latest at the bottom."

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        lines: list[Text] = []
        for line in list(view.log)[-height:]:
            mark = {"": "", "warning": "warning: ", "error": "error: "}[line.kind]
            text = plain_text(mark + line.text, self.look)
            wrapped = textwrap.wrap(text, max(width - AT, 10)) or [""]
            for number, part in enumerate(wrapped):
                at = f"{clock(line.at):>{AT - 1}} " if number == 0 else " " * AT
                lines.append(Text.assemble((at, "dim"), (part, STYLES[line.kind]), no_wrap=True))
        return lines[-height:] or [faint("nothing yet")]
