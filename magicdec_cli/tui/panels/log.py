"""Panel 8: what happened, and what the engine warned about."""

from __future__ import annotations

import textwrap

from rich.text import Text

from magicdec.cli.bars import clock
from magicdec.cli.console import plain_text
from magicdec.cli.tui.panels.base import Panel, faint
from magicdec.cli.tui.view import View

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
