"""A run's numbers as lines of text, for the live display and for the report."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.bars import bar, rate
from magicdec.cli.console import Symbols
from magicdec.cli.live_state import RunInfo
from magicdec.engine.report import Tally

PHASE_STYLES = {
    "select": "yellow", "draft": "magenta", "verify": "blue", "commit": "cyan", "other": "",
}  # fmt: skip


def settings_line(info: RunInfo, symbols: Symbols) -> list[tuple[str, str]]:
    sampling = "greedy" if info.temperature == 0 else f"{info.temperature:g}"
    most = "<=" if symbols.rule == "-" else "≤"
    gamma = f"{info.gamma}"
    if info.gamma_policy != "fixed":
        gamma = f"{info.gamma_policy} {most} {gamma}"
    known = [
        ("B", str(info.batch)), ("context", f"{info.context:,}"),
        *([] if info.budget is None else [("budget", f"{info.budget:,}")]),
        (symbols.gamma, gamma), *([("tree", info.tree)] if info.tree else []), ("T", sampling),
        *([("penalties", info.penalties)] if info.penalties else []),
    ]  # fmt: skip
    if info.predicted is not None:
        known.append(("predicted", f"{info.predicted:.2f}{symbols.times}"))
    return known


def acceptance_lines(tally: Tally, width: int, symbols: Symbols) -> list[Text]:
    lines = []
    for name, value, style in (
        ("now ", tally.recent_acceptance_rate, "green"), ("mean", tally.acceptance_rate, "green"),
    ):  # fmt: skip
        cells = bar(value or 0.0, width - 10, style, symbols)
        lines.append(Text.assemble((f"{name} ", "dim"), (f"{rate(value):>4} ", "bold"), cells))
    length = tally.mean_acceptance_length
    shown = f"{length:.2f}" if length else "-"
    lines.append(
        Text.assemble(("mean length ", "dim"), (shown, "bold"), (" tokens per step", "dim"))
    )
    return lines


def count_lines(tally: Tally) -> list[Text]:
    counts = (
        ("row steps", tally.num_spec_steps), ("drafted", tally.num_draft_tokens),
        ("accepted", tally.num_accepted_draft_tokens),
    )  # fmt: skip
    return [Text.assemble((f"{name:<10}", "dim"), f"{count:>8,}") for name, count in counts]


def position_lines(tally: Tally, width: int, room: int, symbols: Symbols) -> list[Text]:
    """One bar per draft position; what does not fit is listed on the last line."""
    rates = tally.acceptance_rate_per_position
    bars = len(rates) if len(rates) <= room else max(room - 1, 0)
    lines = []
    for place, value in enumerate(rates[:bars], start=1):
        cells = bar(value, width - 10, "cyan", symbols)
        lines.append(Text.assemble((f"{place:<4} ", "dim"), f"{rate(value):>4} ", cells))
    if rates[bars:] and room > 0:
        rest = " ".join(rate(value) for value in rates[bars:])
        lines.append(
            Text.assemble(
                (f"{f'{bars + 1}+':<4} ", "dim"), rest, no_wrap=True, overflow=symbols.overflow
            )
        )
    return lines


def phase_lines(
    tally: Tally, baseline: Tally | None, width: int, room: int, symbols: Symbols
) -> list[Text]:
    phases, steps = tally.phases, max(tally.steps, 1)
    lines = []
    for name, style in PHASE_STYLES.items():
        seconds = getattr(phases, name)
        share = seconds / phases.decode if phases.decode else 0.0
        if seconds == 0 and name in ("select", "draft"):
            continue  # plain decoding has neither
        cells = bar(share, width - 20, style, symbols)
        number = f" {seconds / steps * 1e3:>7.2f}"
        lines.append(
            Text.assemble((f"{name:<6} ", style), cells, number, (f" {share:>4.0%}", "dim"))
        )
    speed = tally.tokens_per_s
    total = Text.assemble((f"{speed:,.1f}" if speed else "-", "bold"), (" tokens/s", "dim"))
    plain = baseline.tokens_per_s if baseline else None
    if speed and plain:
        total.append("  ").append_text(ratio_text(speed / plain, symbols)).append(" plain", "dim")
    total.no_wrap, total.overflow = True, symbols.overflow
    lines = lines[: room - 1] + [Text("")] * (room - 1 - len(lines))
    return [*lines, total]


def ratio_text(ratio: float, symbols: Symbols) -> Text:
    """A speedup with a mark for its direction, none where it rounds to 1."""
    shown = f"{ratio:.2f}{symbols.times}"
    if round(ratio, 2) == 1:
        return Text(f"= {shown}", "bold")
    if ratio > 1:
        return Text(f"{symbols.up} {shown}", "bold green")
    return Text(f"{symbols.down} {shown}", "bold red")
