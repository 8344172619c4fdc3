"""Draws a LiveState into a given width and height; pure, so that pictures and tests can use it."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from magicdec.cli.bars import bar, clock, rate
from magicdec.cli.console import Symbols
from magicdec.cli.live_state import LiveState, RunInfo, prefill_rate, prefill_seconds_left
from magicdec.cli.row_text import ACCEPTED_STYLE, TARGET_STYLE
from magicdec.engine.report import Tally

PHASE_STYLES = {
    "select": "yellow", "draft": "magenta", "verify": "blue", "commit": "cyan", "other": "white",
}  # fmt: skip
SMALLEST = (56, 14)  # columns and lines below which only the essentials are shown
WIDE = 108


def draw(
    state: LiveState, elapsed: float, width: int, height: int, symbols: Symbols
) -> RenderableType:
    """At most `height` lines of `width` cells."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return _essentials(state, elapsed, symbols)
    head = [_title(state, elapsed, symbols), _settings(state, width, symbols)]
    tally = state.recorder.tally()
    gamma = state.info.gamma
    inner = min(max(6, 3 + gamma), max(6, height // 3 - 2))
    rows_inner = height - len(head) - (inner + 2) - 2
    wanted = max(len(state.rows), 1) * 6
    body = _rows(state, width - 4, min(rows_inner, max(wanted, 4)), symbols)
    return Group(*head, body, _numbers(state, tally, width, inner, symbols))


def _essentials(state: LiveState, elapsed: float, symbols: Symbols) -> Text:
    tally = state.recorder.tally()
    parts = [state.title, clock(elapsed)]
    if state.prefill:
        parts.append(f"prefill {state.prefill.done / max(state.prefill.total, 1):.0%}")
    else:
        parts += [f"{state.share:.0%}", f"{tally.tokens_per_s or 0:.1f} tok/s"]
        if tally.acceptance_rate is not None:
            parts.append(f"acc {rate(tally.acceptance_rate)}")
    return Text(f" {symbols.dot} ".join(parts), no_wrap=True, overflow="ellipsis")


def _title(state: LiveState, elapsed: float, symbols: Symbols) -> Table:
    info = state.info
    left = Text(no_wrap=True, overflow="ellipsis")
    left.append(" magicdec ", "bold reverse")
    left.append(f" {info.model}", "bold")
    left.append(f" {symbols.dot} {info.device} {info.dtype} {symbols.dot} {info.selector}", "dim")
    right = Text(no_wrap=True)
    right.append(state.title, "bold")
    right.append(f"  {clock(elapsed)} ", "dim")
    return _sides(left, right)


def _settings(state: LiveState, width: int, symbols: Symbols) -> Table:
    left = Text(no_wrap=True, overflow="ellipsis")
    for name, value in settings_line(state.info, symbols):
        left.append(f" {name} ", "dim")
        left.append(f"{value} ", "bold")
    right = Text(no_wrap=True)
    if not state.prefill:
        done = sum(1 for row in state.rows.values() if row.finish_reason)
        right.append_text(bar(state.share, 10 if width < WIDE else 24, "green", symbols))
        right.append(f" {done}/{state.info.rows} rows ", "dim")
    return _sides(left, right)


def settings_line(info: RunInfo, symbols: Symbols) -> list[tuple[str, str]]:
    sampling = "greedy" if info.temperature == 0 else f"{info.temperature:g}"
    return [
        ("B", str(info.batch)), ("context", f"{info.context:,}"), ("budget", f"{info.budget:,}"),
        (symbols.gamma, str(info.gamma)), ("T", sampling),
    ]  # fmt: skip


def _sides(left: Text, right: Text) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def _panel(content: RenderableType, title: str, height: int, symbols: Symbols) -> Panel:
    return Panel(
        content, title=Text(title, "bold"), title_align="left", height=height, padding=(0, 1),
        border_style="bright_black", box=box.ROUNDED if symbols.rule == "─" else box.ASCII,
    )  # fmt: skip


def _rows(state: LiveState, width: int, height: int, symbols: Symbols) -> Panel:
    if state.prefill:
        return _panel(_prefill(state, width, symbols), "prefill", height + 2, symbols)
    shown = state.shown_rows(height)
    hidden = len(state.rows) - len(shown)
    each, extra = divmod(height, max(len(shown), 1))
    label = max((len(str(index)) for index, _ in shown), default=1)
    lines: list[Text] = []
    for place, (index, row) in enumerate(shown):
        room = each + (place < extra)
        text = row.text.lines(width - label - 1, room) or [Text()]
        for number, line in enumerate(text):
            mark = f"{index:>{label}} " if number == 0 else " " * (label + 1)
            lines.append(Text(mark, "cyan" if not row.finish_reason else "dim").append_text(line))
        if row.finish_reason and lines[-1].cell_len + len(row.finish_reason) + 2 <= width:
            lines[-1].append(f" {symbols.check}{row.finish_reason}", "dim")
    title = f"rows ({hidden} more not shown)" if hidden else "rows"
    panel = _panel(Group(*lines), title, height + 2, symbols)
    if state.info.gamma and state.title != "plain":
        panel.subtitle = Text.assemble(
            (" accepted from the draft ", ACCEPTED_STYLE),
            "  ",
            (" drawn by the target ", TARGET_STYLE),
        )
        panel.subtitle_align = "right"
    return panel


def _prefill(state: LiveState, width: int, symbols: Symbols) -> Group:
    progress = state.prefill
    assert progress is not None
    share = progress.done / max(progress.total, 1)
    line = Text(f"{progress.done:,} of {progress.total:,} tokens in the cache", "bold")
    if progress.reused:
        line.append(f", {progress.reused:,} of them copied", "dim")
    facts = [f"row {progress.row}", f"{share:.0%}"]
    speed, left = prefill_rate(progress), prefill_seconds_left(progress)
    if speed is not None and left is not None:
        facts += [f"{speed:,.0f} tokens/s", f"at most {clock(left)} left"]
    return Group(bar(share, width, "green", symbols), line, Text(f" {symbols.dot} ".join(facts)))


def _numbers(
    state: LiveState, tally: Tally, width: int, inner: int, symbols: Symbols
) -> RenderableType:
    grid = Table.grid(expand=True, padding=0)
    speculative = state.title != "plain"
    columns = 3 if width >= WIDE and speculative else 2
    sizes = [width // columns] * (columns - 1)
    sizes.append(width - sum(sizes))
    for size in sizes:
        grid.add_column(width=size)
    room = [size - 4 for size in sizes]
    cells: list[RenderableType] = []
    if not speculative:
        note = Text("plain decoding first: the baseline. It drafts nothing, so there is nothing to "
                    "accept or reject.", "dim")  # fmt: skip
        cells.append(_panel(note, "acceptance", inner + 2, symbols))
    elif columns == 3:
        lines = acceptance_lines(tally, room[0], symbols)
        cells.append(_panel(Group(*lines), "acceptance", inner + 2, symbols))
        positions = position_lines(tally, room[1], inner, symbols)
        cells.append(_panel(Group(*positions), "by position", inner + 2, symbols))
    else:
        lines = acceptance_lines(tally, room[0], symbols)
        lines += position_lines(tally, room[0], inner - len(lines), symbols)
        cells.append(_panel(Group(*lines), "acceptance", inner + 2, symbols))
    steps = phase_lines(state, tally, room[-1], inner, symbols)
    cells.append(_panel(Group(*steps), "ms per step", inner + 2, symbols))
    grid.add_row(*cells)
    return grid


def acceptance_lines(tally: Tally, width: int, symbols: Symbols) -> list[Text]:
    lines = []
    for name, value, style in (
        ("now ", tally.recent_acceptance_rate, "green"), ("mean", tally.acceptance_rate, "green"),
    ):  # fmt: skip
        line = Text(f"{name} ", "dim").append(f"{rate(value):>4} ", "bold")
        lines.append(line.append_text(bar(value or 0.0, width - 10, style, symbols)))
    length = tally.mean_acceptance_length
    line = Text("mean length ", "dim").append(f"{length:.2f}" if length else "-", "bold")
    lines.append(line.append(" tokens per step", "dim"))
    return lines


def position_lines(tally: Tally, width: int, room: int, symbols: Symbols) -> list[Text]:
    """One bar per draft position; what does not fit is listed on the last line."""
    rates = tally.acceptance_rate_per_position
    bars = len(rates) if len(rates) <= room else max(room - 1, 0)
    lines = []
    for place, value in enumerate(rates[:bars], start=1):
        line = Text(f"{place:<4} ", "dim").append(f"{rate(value):>4} ")
        lines.append(line.append_text(bar(value, width - 10, "cyan", symbols)))
    if rates[bars:] and room > 0:
        rest = Text(f"{bars + 1}+   ", "dim", no_wrap=True, overflow="ellipsis")
        lines.append(rest.append(" ".join(rate(value) for value in rates[bars:])))
    return lines


def phase_lines(
    state: LiveState, tally: Tally, width: int, inner: int, symbols: Symbols
) -> list[Text]:
    phases, steps = tally.phases, max(tally.steps, 1)
    lines = []
    for name, style in PHASE_STYLES.items():
        seconds = getattr(phases, name)
        share = seconds / phases.decode if phases.decode else 0.0
        if seconds == 0 and name in ("select", "draft"):
            continue  # plain decoding has neither; selection is known at the end of the run
        line = Text(f"{name:<6} ", style).append_text(bar(share, width - 20, style, symbols))
        lines.append(
            line.append(f" {seconds / steps * 1e3:>7.2f}").append(f" {share:>4.0%}", "dim")
        )
    speed = tally.tokens_per_s
    total = Text(f"{speed:,.1f}" if speed else "-", "bold").append(" tokens/s", "dim")
    plain = state.baseline.tokens_per_s if state.baseline else None
    if speed and plain:
        better = speed >= plain
        mark = symbols.up if better else symbols.down
        total.append(
            f"  {mark} {speed / plain:.2f}{symbols.times}", "bold green" if better else "bold red"
        )
        total.append(f" of plain's {plain:,.1f}", "dim")
    total.no_wrap, total.overflow = True, "ellipsis"
    lines = lines[: inner - 1] + [Text("")] * (inner - 1 - len(lines))
    return [*lines, total]
