"""Panel 2: where a step's time goes."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.bars import bar
from magicdec.cli.live_state import prefill_rate, prefill_seconds_left
from magicdec.cli.number_lines import PHASE_STYLES
from magicdec.cli.tui.panels.base import Panel, fact, faint
from magicdec.cli.tui.view import RunView, View

WIDEST = 76


class PhasesPanel(Panel):
    key, title = "2", "step, median ms"
    terms = (
        "step", "median ms", "select", "draft", "verify", "commit", "other", "plain step",
        "tokens/s", "prefill", "reused",
    )  # fmt: skip
    about = (
        "Milliseconds of one step of the whole batch, the median over its last 1,000 steps; the "
        "share is of all time after prefill. Selection happens once per row, before its first "
        "step: its milliseconds are spread over the steps when the run ends."
    )

    def lines(self, view: View, width: int, height: int) -> list[Text]:
        run = view.shown
        if run is None or run.tally is None:
            return [faint("nothing has run yet")]
        width = min(width, WIDEST)
        if run.prefill is not None:
            return self._prefill(run, width)
        names = [name for name in PHASE_STYLES if self._ms(run, name) is not None]
        lines = [self._phase(run, name, width) for name in names[: height - 1]]
        return [*lines, *[Text("")] * (height - 1 - len(lines)), self._totals(run, width)]

    def _ms(self, run: RunView, name: str) -> float | None:
        tally = run.tally
        assert tally is not None
        if name == "select":
            seconds = tally.phases.select
            return seconds / tally.steps * 1e3 if seconds and tally.steps else None
        if name == "draft" and run.drafting is None:
            return None
        return run.medians.get(name)

    def _phase(self, run: RunView, name: str, width: int) -> Text:
        assert run.tally is not None
        ms, decode = self._ms(run, name) or 0.0, run.tally.phases.decode
        share = getattr(run.tally.phases, name) / decode if decode else 0.0
        style = PHASE_STYLES[name]
        cells = bar(share, width - 21, style, self.look)
        line = Text.assemble(
            (f"{name:<6} ", style), cells, f" {ms:>8.2f}", (f" {share:>4.0%}", "dim")
        )
        line.no_wrap = True
        return line

    def _totals(self, run: RunView, width: int) -> Text:
        """As many of the numbers as there is room for, none cut."""
        step, speed = run.medians.get("step"), run.tally.tokens_per_s if run.tally else None
        facts = [fact("step", f"{step:.1f}" if step else "-")]
        if run.plain_step_ms and run.drafting is not None:
            facts.append(fact("plain", f"{run.plain_step_ms:.1f}"))
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
        speed, left = prefill_rate(progress), prefill_seconds_left(progress)
        if speed is not None and left is not None:
            lines.append(fact("speed", f"{speed:,.0f} tokens/s", width=8))
            lines.append(fact("left", f"at most {left:,.0f} s", width=8))
        return lines
