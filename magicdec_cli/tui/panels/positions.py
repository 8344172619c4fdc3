"""Beside panel 1: acceptance by draft position, and how many tokens a step accepts."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.bars import bar
from magicdec.cli.number_lines import position_lines
from magicdec.cli.tui.panels.base import Panel, faint
from magicdec.cli.tui.view import View

WIDEST = 60
COUNTS_FROM = 4  # free lines that the second part of the panel needs


class PositionsPanel(Panel):
    title = "by position"
    terms = ("by position", "accepted per step", "γ", "recovered", "bonus")
    about = "One bar per position of the draft, on a scale from 0 to 1."

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        tally = view.shown.drafting if view.shown is not None else None
        if tally is None or not tally.num_spec_steps:
            return [faint("no draft yet")]
        width = min(width, WIDEST)
        lines = position_lines(tally, width, height, self.look)
        room = height - len(lines)
        if room < min(COUNTS_FROM, len(tally.histogram) + 2):
            return lines
        lines += [Text(""), faint("accepted per step")]
        for accepted, count in enumerate(tally.histogram[: room - 2]):
            share = count / tally.num_spec_steps
            cells = bar(share, width - 10, "green", self.look)
            line = Text.assemble((f"{accepted:<4} ", "dim"), f"{share:>4.0%} ", cells)
            line.no_wrap = True
            lines.append(line)
        return lines
