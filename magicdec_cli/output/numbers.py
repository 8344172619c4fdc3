"""How numbers are written: rates, times, counts, and bars on a fixed 0..1 scale."""

from __future__ import annotations

from rich.text import Text

from magicdec.cli.output.console import Symbols
from magicdec.cli.output.live_state import RunInfo
from magicdec.engine.events import InnerDrafts
from magicdec.engine.gamma.policy import GammaPolicy
from magicdec.engine.report import Tally
from magicdec.profiles.recorded.schema import Cell, CellKey


def bar(share: float, width: int, style: str, symbols: Symbols) -> Text:
    """`share` of `width` cells filled, in eighths where the terminal has the characters."""
    share = min(max(share, 0.0), 1.0)
    steps = len(symbols.parts)
    eighths = round(share * width * steps)
    whole, part = divmod(eighths, steps)
    filled = symbols.full * whole + (symbols.parts[part] if part else "")
    text = Text(filled, style=style)
    text.append(symbols.empty * (width - len(filled)), style="bright_black")
    return text


def rate(value: float | None, decimals: int = 2) -> str:
    """A rate in 0..1 as people write them: .53, 1.00; a dash when there is none."""
    if value is None:
        return "-"
    text = f"{value:.{decimals}f}"
    return text.removeprefix("0") if text.startswith("0.") else text


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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


MAX_CHANGES = 4


def gamma_lines(policy: GammaPolicy, most: int, report: Tally, look: Symbols) -> Text:
    """The policy, the mean γ of all steps, and when it changed."""
    text = Text.assemble((f"{look.gamma} ", "dim"), (policy.name, "bold"))
    text.append(f", mean {report.mean_gamma or 0:.2f}", "bold")
    text.append(f" of at most {most}", "dim")
    if how := choice(policy):
        text.append(f": {how}", "dim")
    changes = report.gamma_chosen
    if len(changes) > 1:
        shown = [
            f"step {c.step}: {c.gamma} (B {c.rows}, context {c.context:,})"
            for c in changes[:MAX_CHANGES]
        ]
        if len(changes) > MAX_CHANGES:
            shown.append(f"and {len(changes) - MAX_CHANGES} more changes; --json lists all")
        text.append("\n  " + "; ".join(shown), "dim")
    return text


def cell_gamma(cell: Cell, *, most: bool = False) -> str:
    """γ of a recorded cell; of one that changes the mean, and with `most` its bound: 2.3 of 8."""
    gamma, mean = cell.key.gamma, cell.mean_gamma
    if cell.key.fixed:
        return str(gamma)
    if mean is None:
        return key_gamma(cell.key)
    return f"{mean:.1f}" + (f" of {gamma}" if most else "")


def key_gamma(key: CellKey) -> str:
    """γ of a setting: of one that changes only its bound is known."""
    return str(key.gamma) if key.fixed else f"up to {key.gamma}"


def inner_line(inner: InnerDrafts) -> Text:
    """Acceptance inside the drafts of a cascade."""
    text = Text.assemble(("inner drafts ", "dim"))
    text.append(f"{inner.accepted:,} of {inner.drafted:,} accepted by the self-draft", "bold")
    length = 1 + inner.accepted / inner.passes if inner.passes else 0.0
    return text.append(f", {length:.2f} tokens per draft pass", "dim")


def choice(policy: GammaPolicy) -> str:
    """How the policy chooses, in a few words."""
    if policy.stop is not None:
        words = f"a draft ends where it is accepted with less than {policy.stop:g}"
        return f"{words} ({policy.source})" if policy.source else words
    return policy.source
