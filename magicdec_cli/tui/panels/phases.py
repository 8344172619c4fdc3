"""Panel 2: where a step's time goes."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.output.live_state import prefill_rate, prefill_seconds_left
from magicdec.cli.output.numbers import PHASE_STYLES, bar
from magicdec.cli.tui.panels.base import Panel, fact, faint
from magicdec.cli.tui.view import RunView, View
from magicdec.engine.report import Tally

WIDEST = 76


class PhasesPanel(Panel):
    key, title = "2", "step, ms"
    terms = (
        "step", "ms/step", "select", "draft", "verify", "commit", "other", "plain step",
        "tokens/s", "load", "prefill", "reused",
    )  # fmt: skip
    about = (
        "Milliseconds of one step of the whole batch: all time after load and prefill, spread over "
        "the steps, and what share of it each phase takes. Selection is in it, although a static "
        "selector chooses once per row, before its first step: a short run pays more of it a step."
    )

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        run = view.shown
        if run is None or run.tally is None:
            return [faint("nothing has run yet")]
        width = min(width, WIDEST)
        if run.prefill is not None:
            return self._prefill(run, width)
        times = _step_ms(run.tally)
        shown = [
            self._phase(name, times[name], times["step"], width)
            for name in PHASE_STYLES
            if name in times
        ][: height - 1]
        return [*shown, *[Text("")] * (height - 1 - len(shown)), self._totals(run, width)]

    def _phase(self, name: str, ms: float, step: float, width: int) -> Text:
        share = ms / step if step else 0.0
        style = PHASE_STYLES[name]
        cells = bar(share, width - 21, style, self.look)
        line = Text.assemble(
            (f"{name:<6} ", style), cells, f" {ms:>8.2f}", (f" {share:>4.0%}", "dim")
        )
        line.no_wrap = True
        return line

    def _totals(self, run: RunView, width: int) -> Text:
        """As many of the numbers as there is room for, none cut."""
        assert run.tally is not None
        step, speed = _step_ms(run.tally).get("step"), run.tally.tokens_per_s
        facts = [fact("step", f"{step:.1f}" if step else "-")]
        plain = _step_ms(run.plain).get("step") if run.plain and run.drafting else None
        if plain:
            facts.append(fact("plain", f"{plain:.1f}"))
        if speed:
            facts.append(Text.assemble((f"{speed:,.1f}", "bold"), (" tok/s", "dim")))
        line = facts[0]
        for more in facts[1:]:
            if line.cell_len + 3 + more.cell_len <= width:
                line.append("   ").append_text(more)
        return line

    def _prefill(self, run: RunView, width: int) -> list[Text]:
        progress = run.prefill
        assert progress is not None
        share = progress.done / max(progress.total, 1)
        lines = [
            Text.assemble(("prefill ", "bold"), bar(share, width - 14, "green", self.look),
                          f" {share:>4.0%}"),
            fact("tokens", f"{progress.done:,} of {progress.total:,}", width=8),
            fact("reused", f"{progress.reused:,}", width=8),
        ]  # fmt: skip
        if run.tally is not None and run.tally.phases.load:
            lines.append(fact("loaded", f"in {run.tally.phases.load:,.1f} s", width=8))
        speed, left = prefill_rate(progress), prefill_seconds_left(progress)
        if speed is not None and left is not None:
            lines.append(fact("speed", f"{speed:,.0f} tokens/s", width=8))
            lines.append(fact("left", f"at most {left:,.0f} s", width=8))
        return lines


def _step_ms(tally: Tally) -> dict[str, float]:
    """Milliseconds by phase, which add up to those of a "step"; {} before there is one."""
    if not tally.steps:
        return {}
    seconds = {name: getattr(tally.phases, name) for name in PHASE_STYLES} | {
        "step": tally.decode_seconds
    }
    return {
        name: value / tally.steps * 1e3
        for name, value in seconds.items()
        if value or name not in ("select", "draft")
    }
