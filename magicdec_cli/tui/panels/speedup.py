"""Panel 3: measured against predicted speedup, and against the pinned run."""

from __future__ import annotations

import textwrap

from rich.text import Text

from magicdec.cli.output.console import Symbols
from magicdec.cli.output.numbers import bar, rate, ratio_text
from magicdec.cli.tui.panels.base import Panel, fact, faint
from magicdec.cli.tui.view import RunView, View
from magicdec.engine.gamma.auto import ASSUMED

NAME = 10
RATIO, SPREAD = 7, 8  # columns of a ratio with its mark, and of what stands behind it
FULL_SCALE = 1.25  # the bars' end, as a multiple of the larger value
WIDEST = 70


class SpeedupPanel(Panel):
    key, title = "3", "speedup"
    terms = (
        "speedup, decode", "± of a speedup", "disturbed", "predicted", "gap", "break-even length",
        "lossless", "pinned",
    )  # fmt: skip
    about = (
        "Measured: plain decoding's time over speculative decoding's, for the same rows and number "
        "of tokens. Predicted: what the cost model said when the run began."
    )

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        run = view.shown
        if run is None:
            return [faint("nothing has run yet")]
        width = min(width, WIDEST)
        lines = speedup_lines(run, width, self.look)
        pinned = next((r for r in view.runs if r.number == view.pinned), None)
        if pinned is not None:
            lines.append(versus(run, pinned, self.look))
        lines.append(lossless_line(run, self.look))
        if run.disturbed:  # before what a low panel has no room for
            said = textwrap.wrap(f"disturbed: {run.disturbed}; measure again", max(width, 10))
            lines[2:2] = [Text(part, "yellow", no_wrap=True) for part in said]
        return lines


def speedup_lines(run: RunView, width: int, look: Symbols) -> list[Text]:
    """Measured, predicted with the gap, and the length at which speculation breaks even."""
    measured, predicted = run.measured, run.predicted
    values = [m.speedup for m in (measured, predicted) if m is not None]
    scale = max([1.0, *values]) * FULL_SCALE
    room = max(width - NAME - 1 - RATIO - SPREAD, 0)
    first = _named("measured")
    if measured is None:
        first.append("-" if run.status != "plain" else "after plain decoding", "dim")
    else:
        spread = "" if measured.spread is None else f" {_plus(look)} {measured.spread:.2f}"
        first.append_text(ratio_text(measured.speedup, look)).append(f"{spread:<{SPREAD}}", "dim")
        first.append_text(bar(measured.speedup / scale, room, "green", look))
    second = _named("predicted")
    if predicted is None:
        second.append("-", "dim")
    else:
        second.append(f"  {predicted.speedup:.2f}{look.times}", "bold").append(" " * SPREAD)
        second.append_text(bar(predicted.speedup / scale, room, "cyan", look))
    lines = [first, second]
    guesses = _guesses(run)
    if guesses:
        lines.append(fact("", guesses, "dim", NAME))
    gap = run.gap
    if gap is not None:
        mark = "=" if abs(gap) < 0.005 else look.up if gap > 0 else look.down
        lines.append(fact("gap", f"{mark} {abs(gap):.1%}", "", NAME))
    if run.break_even is not None and run.drafting is not None:
        length = run.drafting.mean_acceptance_length
        line = fact("break-even", f"length {run.break_even:.2f}", "bold", NAME)
        lines.append(line.append(f", now {length:.2f}" if length else "", "dim"))
    return lines


def _named(name: str) -> Text:
    """The beginning of a line; what is appended is not faint."""
    return Text.assemble((f"{name:<{NAME}} ", "dim"), no_wrap=True)


def _guesses(run: RunView) -> str:
    """What of the prediction was not measured on this machine and text."""
    forecast = run.predicted
    if forecast is None:
        return ""
    if forecast.rough and forecast.assumed:
        return f"rough costs, {rate(ASSUMED)} assumed"
    return "rough costs" * forecast.rough + "assumed acceptance" * forecast.assumed


def versus(run: RunView, pinned: RunView, look: Symbols) -> Text:
    name = f"vs run {pinned.number}"
    if run.number == pinned.number:
        return fact(name, "pinned", "dim", NAME)
    mine, theirs = run.tokens_per_s, pinned.tokens_per_s
    if not (mine and theirs):
        return fact(name, "-", "dim", NAME)
    line = _named(name)
    return line.append_text(ratio_text(mine / theirs, look)).append(" tokens/s", "dim")


def lossless_line(run: RunView, look: Symbols) -> Text:
    return _named("lossless").append_text(lossless_mark(run, look))


def lossless_mark(run: RunView, look: Symbols) -> Text:
    """✓ identical, ≈ ties, ✗ differs, or why it is not known."""
    verdict = run.lossless
    if verdict is None:
        return Text("checking" if run.status == "checking" else "-", "dim")
    if not verdict.checked:
        return Text("by distribution", "dim")
    if verdict.identical:
        return Text(f"{look.check} identical", "green")
    if verdict.ok:
        ties = len(verdict.divergences)
        return Text(f"{look.tie} {ties} tie{'s' * (ties > 1)}", "yellow")
    return Text(f"{look.cross} differs", "bold red")


def _plus(look: Symbols) -> str:
    return "+-" if look.rule == "-" else "±"


def short_acceptance(run: RunView) -> str:
    return rate(run.drafting.acceptance_rate) if run.drafting is not None else "-"
