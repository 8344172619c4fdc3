"""Panel 1: how much of what is drafted passes verification, over time."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.output.numbers import bar, position_lines, rate
from magicdec.cli.tui.graphs import share_graph
from magicdec.cli.tui.panels.base import Panel, faint
from magicdec.cli.tui.runs import bucketed
from magicdec.cli.tui.view import View

WIDEST = 120  # columns of the graph; more say nothing new


class AcceptancePanel(Panel):
    key, title = "1", "acceptance"
    terms = ("acceptance rate", "mean length", "drafted", "accepted", "row steps")
    about = (
        "Each column is one step, or several pooled when there are more steps than columns: "
        "accepted / drafted over all rows, from the first step at the left, always on a scale "
        "from 0 to 1."
    )

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        run = view.shown
        tally = run.drafting if run is not None else None
        if run is None or tally is None:
            plain = run is not None and run.status == "plain"
            note = "plain decoding first" if plain else "no draft yet"
            return [*share_graph((), width, max(height - 1, 1), "", self.look), faint(note)]
        values = bucketed(run.history, min(width - 4, WIDEST))
        numbers = Text.assemble(
            ("now ", "dim"), (rate(tally.recent_acceptance_rate), "bold"),
            (" mean ", "dim"), (rate(tally.acceptance_rate), "bold green"), no_wrap=True,
        )  # fmt: skip
        length = tally.mean_acceptance_length
        if length is not None:
            numbers.append(" length ", "dim").append(f"{length:.2f}", "bold")
        return [*share_graph(values, width, max(height - 1, 1), "green", self.look), numbers]


WIDEST_BARS = 60
COUNTS_FROM = 4  # free lines that the second part of the panel needs


class PositionsPanel(Panel):
    title = "by position"
    terms = ("by position", "accepted per step", "γ", "recovered", "bonus")
    about = "One bar per position of the draft, on a scale from 0 to 1."

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        tally = view.shown.drafting if view.shown is not None else None
        if tally is None or not tally.num_spec_steps:
            return [faint("no draft yet")]
        width = min(width, WIDEST_BARS)
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
