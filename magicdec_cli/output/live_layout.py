"""Draws a LiveState into a given width and height; pure, so that pictures and tests can use it."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from magicdec.cli.output.console import Symbols
from magicdec.cli.output.live_state import LiveState, RunInfo, prefill_rate, prefill_seconds_left
from magicdec.cli.output.numbers import (
    acceptance_lines,
    bar,
    clock,
    count_lines,
    phase_lines,
    position_lines,
    rate,
    settings_line,
)
from magicdec.cli.output.row_text import ACCEPTED_STYLE, TARGET_STYLE
from magicdec.engine.report import Tally

SMALLEST = (56, 14)  # columns and lines below which only the essentials are shown
WIDE = 108


def draw(
    state: LiveState, elapsed: float, width: int, height: int, symbols: Symbols
) -> RenderableType:
    """At most `height` lines of `width` cells."""
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return _essentials(state, elapsed, symbols)
    head = [_title(state, elapsed, width, symbols), _settings(state, width, symbols)]
    tally = state.recorder.tally()
    gamma = state.info.gamma
    if not state.rows:
        waiting = _prefill(state, width - 4, symbols) if state.prefill else Text("starting", "dim")
        return Group(*head, _panel(waiting, "prefill", 5, symbols))
    inner = min(max(6, 3 + gamma), max(6, height // 3 - 2))
    rows_inner = height - len(head) - (inner + 2) - 2
    body = _rows(state, width - 4, min(rows_inner, _lines_wanted(state.info, width)), symbols)
    return Group(*head, body, _numbers(state, tally, width, inner, symbols))


def _lines_wanted(info: RunInfo, width: int) -> int:
    """Enough for every row's whole output at about five characters a token."""
    return max(min(info.rows, info.batch) * -(-info.max_new_tokens * 5 // width), 4)


def _essentials(state: LiveState, elapsed: float, symbols: Symbols) -> Text:
    tally = state.recorder.tally()
    parts = [state.title, clock(elapsed)]
    if state.prefill:
        parts.append(f"prefill {state.prefill.done / max(state.prefill.total, 1):.0%}")
    else:
        parts += [f"{state.share:.0%}", f"{tally.tokens_per_s or 0:.1f} tok/s"]
        if tally.acceptance_rate is not None:
            parts.append(f"acc {rate(tally.acceptance_rate)}")
    return Text(f" {symbols.dot} ".join(parts), no_wrap=True, overflow=symbols.overflow)


def _title(state: LiveState, elapsed: float, width: int, symbols: Symbols) -> Table:
    info = state.info
    left = Text(no_wrap=True, overflow=symbols.overflow)
    left.append(" magicdec ", "bold reverse")
    rest = f" {symbols.dot} {info.device} {info.dtype} {symbols.dot} {info.selector}"
    room = max(width - len(rest) - 34, 8)  # 34: the label, the title and the clock
    name = info.model
    if len(name) > room:
        name = name[: room - len(symbols.ellipsis)] + symbols.ellipsis
    left.append(f" {name}", "bold")
    left.append(rest, "dim")
    right = Text(no_wrap=True)
    right.append(state.title, "bold")
    right.append(f"  {clock(elapsed)} ", "dim")
    return _sides(left, right, symbols)


def _settings(state: LiveState, width: int, symbols: Symbols) -> Table:
    left = Text(no_wrap=True, overflow=symbols.overflow)
    for name, value in settings_line(state.info, symbols):
        left.append(f" {name} ", "dim")
        left.append(f"{value} ", "bold")
    right = Text(no_wrap=True)
    if not state.prefill:
        done = sum(1 for row in state.rows.values() if row.finish_reason)
        right.append_text(bar(state.share, 10 if width < WIDE else 24, "green", symbols))
        right.append(f" {done}/{state.info.rows} rows ", "dim")
    return _sides(left, right, symbols)


def _sides(left: Text, right: Text, symbols: Symbols) -> Table:
    grid = Table.grid(expand=True)
    grid.add_column(ratio=1, no_wrap=True, overflow=symbols.overflow)
    grid.add_column(justify="right", no_wrap=True, overflow=symbols.overflow)
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
            style = "dim" if row.finish_reason else "cyan"
            lines.append(Text.assemble((mark, style), line))
        if row.finish_reason and lines[-1].cell_len + len(row.finish_reason) + 2 <= width:
            lines[-1].append(f" {symbols.check}{row.finish_reason}", "dim")
    title = f"rows ({hidden} more not shown)" if hidden else "rows"
    panel = _panel(Group(*lines), title, height + 2, symbols)
    if state.marked:
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
    line = Text.assemble((f"{progress.done:,} of {progress.total:,} tokens in the cache", "bold"))
    if progress.reused:
        line.append(f", {progress.reused:,} of them copied", "dim")
    facts = [f"row {progress.row}", f"{share:.0%}"]
    if load := state.recorder.tally().phases.load:
        facts.append(f"loaded in {load:.1f} s")
    speed, left = prefill_rate(progress), prefill_seconds_left(progress)
    if speed is not None and left is not None:
        facts += [f"{speed:,.0f} tokens/s", f"at most {clock(left)} left"]
    return Group(bar(share, width, "green", symbols), line, Text(f" {symbols.dot} ".join(facts)))


def _numbers(
    state: LiveState, tally: Tally, width: int, inner: int, symbols: Symbols
) -> RenderableType:
    grid = Table.grid(expand=True, padding=0)
    speculative = state.speculative
    columns = 3 if width >= WIDE and speculative else 2
    sizes = [width // columns] * (columns - 1)
    sizes.append(width - sum(sizes))
    for size in sizes:
        grid.add_column(width=size)
    room = [size - 4 for size in sizes]
    cells: list[RenderableType] = []
    if not speculative:
        about = "First the baseline, plain decoding. It" if state.info.gamma else "Plain decoding"
        note = Text(f"{about} drafts nothing, so there is nothing to accept.", "dim")
        cells.append(_panel(note, "acceptance", inner + 2, symbols))
    elif columns == 3:
        lines = acceptance_lines(tally, room[0], symbols)
        lines += count_lines(tally)
        cells.append(_panel(Group(*lines), "acceptance", inner + 2, symbols))
        positions = position_lines(tally, room[1], inner, symbols)
        cells.append(_panel(Group(*positions), "by position", inner + 2, symbols))
    else:
        lines = acceptance_lines(tally, room[0], symbols)
        lines += position_lines(tally, room[0], inner - len(lines), symbols)
        cells.append(_panel(Group(*lines), "acceptance", inner + 2, symbols))
    steps = phase_lines(tally, state.baseline, room[-1], inner, symbols)
    cells.append(_panel(Group(*steps), "ms per step", inner + 2, symbols))
    grid.add_row(*cells)
    return grid
