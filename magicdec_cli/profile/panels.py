"""The parts of `profile show`: tables, bars and curves, each from the whole profile."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from rich.text import Text

from magicdec.cli.output.console import Symbols
from magicdec.cli.output.heatmap import color, ink
from magicdec.cli.output.numbers import PHASE_STYLES, bar, cell_gamma, rate, ratio_text
from magicdec.cli.output.plots import curves
from magicdec.engine.draft_spec import DraftSpec
from magicdec.profiles.acceptance.rates import AcceptanceCounts, pooled
from magicdec.profiles.costs.step_times import NOT_MEASURED
from magicdec.profiles.recorded.schema import Cell, Profile

MOST_LINES = 12
MOST_ROWS = 24


def best_table(profile: Profile, width: int, look: Symbols) -> list[Text] | None:
    """A heat map: the best measured speedup by batch × context, with the γ that gave it."""
    best = _best(profile)
    contexts = sorted({context for _, context in best})
    batches = sorted({batch for batch, _ in best})
    if len(best) < 2:
        return None
    shown = {place: _speedup_cell(cell, look) for place, cell in best.items()}
    column = 2 + max(9, *(text.cell_len for text in shown.values()))
    room = max((width - 8) // column, 1)
    lines = [Text("best measured speedup, batch by context", "bold")]
    heading = Text(f"{'B':>6}  ", "dim")
    for context in contexts[:room]:
        heading.append(f"{context:>{column},}", "dim")
    lines.append(heading)
    for batch in batches[:MOST_ROWS]:
        line = Text(f"{batch:>6}  ")
        for context in contexts[:room]:
            value = shown.get((batch, context), Text("-"))
            line.append(" " * (column - value.cell_len)).append_text(value)
        lines.append(line)
    for name, more in (("batches", len(batches) - MOST_ROWS), ("contexts", len(contexts) - room)):
        if more > 0:
            lines.append(Text(f"and {more:,} more {name}", "dim"))
    return lines


def _best(profile: Profile) -> dict[tuple[int, int], Cell]:
    """The cell of the highest speedup at each batch and context."""
    best: dict[tuple[int, int], Cell] = {}
    for cell in sorted(profile.finished, key=lambda cell: cell.speedup or 0.0):
        if cell.speedup:
            best[cell.key.batch, cell.key.context] = cell
    return best


def _speedup_cell(cell: Cell, look: Symbols) -> Text:
    """On the colour that predictions have for this speedup; the mark says it without colour."""
    assert cell.speedup is not None
    background = color(cell.speedup)
    red, green, blue = background
    text = f" {ratio_text(cell.speedup, look).plain} {look.gamma}{cell_gamma(cell)} "
    return Text(text, f"{ink(background)} on rgb({red},{green},{blue})")


def acceptance_curve(profile: Profile, width: int, look: Symbols) -> list[Text] | None:
    """Acceptance of the first draft position by budget: it does not depend on γ."""
    by_drafter = _by_drafter(profile)
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for drafter in sorted(by_drafter):
        if drafter.budget is None:
            continue
        label = drafter.label.replace(f" {drafter.budget}", "", 1)
        series[label].append((drafter.budget, _rates(drafter, by_drafter[drafter])[0]))
    if all(len(points) < 2 for points in series.values()):
        return None
    title = "acceptance of position 1 against budget, cells pooled"
    drawn = curves(series, title=title, width=width, look=look, low=0.0, high=1.0)
    for label, points in series.items():
        values = "  ".join(f"{budget:,.0f}: {rate(value)}" for budget, value in sorted(points))
        drawn.append(Text(f"  {label}  {values}", "dim"))
    return drawn


def _by_drafter(profile: Profile) -> dict[DraftSpec, AcceptanceCounts]:
    """Pooled over batch, context and γ."""
    found: dict[DraftSpec, list[AcceptanceCounts]] = defaultdict(list)
    for cell in profile.finished:
        if cell.drafted:
            found[cell.key.drafter].append(cell.acceptance)
    return {drafter: pooled(counts) for drafter, counts in found.items()}


def _rates(drafter: DraftSpec, counts: AcceptanceCounts) -> tuple[float, ...]:
    return counts.falling if drafter.fixed else counts.shares


def position_bars(profile: Profile, width: int, look: Symbols) -> list[Text] | None:
    """Acceptance by position of every drafter, unconditional, pooled over batch, context and γ."""
    by_drafter = _by_drafter(profile)
    if not by_drafter:
        return None
    lines = [Text("acceptance by position, pooled over all but the drafter", "bold")]
    for drafter in sorted(by_drafter)[:MOST_LINES]:
        counts = by_drafter[drafter]
        lines.append(Text(f"{drafter.label}  ({counts.steps:,} steps)", "dim"))
        for place, value in enumerate(_rates(drafter, counts), start=1):
            cells = bar(value, min(width - 10, 50), "cyan", look)
            lines.append(Text.assemble((f"{place:<4} ", "dim"), f"{rate(value):>4} ", cells))
    if len(by_drafter) > MOST_LINES:
        lines.append(Text(f"and {len(by_drafter) - MOST_LINES} more drafters", "dim"))
    return lines


def phase_bars(profile: Profile, width: int, look: Symbols) -> list[Text] | None:
    """Where the time after prefill went in the fastest cells; letters tell phases apart."""
    best = _best(profile)
    cells = [best[place] for place in sorted(best) if _seconds(best[place])]
    if not cells:
        return None
    names = tuple(PHASE_STYLES)
    legend = Text("phases: ", "bold")
    for name in names:
        legend.append(f"{name[0]} ", PHASE_STYLES[name]).append(f"{name}  ", "dim")
    room = max(width - 58, 10)
    lines = [legend]
    for cell in cells[:MOST_LINES]:
        total = _seconds(cell)
        shares = [_phase(cell, name) / total for name in names]
        label = f"B {cell.key.batch}, {cell.key.context:,}, {look.gamma} {cell_gamma(cell)}"
        line = Text(f"{label:<22} ", no_wrap=True)
        for name, letters in zip(names, _letters(names, shares, room), strict=True):
            line.append(letters, f"{PHASE_STYLES[name]} reverse")
        for name in ("draft", "verify", "select"):
            line.append(f" {name} {shares[names.index(name)]:>3.0%}", "dim")
        lines.append(line)
    if len(cells) > MOST_LINES:
        lines.append(Text(f"and {len(cells) - MOST_LINES} more cells", "dim"))
    return lines


def step_table(profile: Profile, look: Symbols) -> list[Text] | None:
    """Step times of the fastest cells, in milliseconds: medians, of selection the mean."""
    best = _best(profile)
    cells = [best[place] for place in sorted(best) if best[place].step != NOT_MEASURED]
    if not cells:
        return None
    gammas = [cell_gamma(cell) for cell in cells]
    wide = max(3, *map(len, gammas))
    head = f"{'B':>5} {'context':>9} {look.gamma:>{wide}} "
    names = ("T_T", "T_D", "T_V", "select")
    title = "median ms: plain step, draft step, verify pass; mean: selection per step; best cells"
    lines = [Text(title, "bold")]
    lines.append(Text(head + "".join(f"{name:>9}" for name in names), "dim"))
    for cell, gamma in zip(cells[:MOST_LINES], gammas, strict=False):
        times = (cell.step.plain, cell.step.draft, cell.step.verify, cell.step.select)
        shown = "".join(f"{'-' if t is None else f'{t * 1e3:,.2f}':>9}" for t in times)
        key = cell.key
        lines.append(Text(f"{key.batch:>5} {key.context:>9,} {gamma:>{wide}} {shown}"))
    return lines


def _letters(names: Sequence[str], shares: Sequence[float], room: int) -> list[str]:
    """Each phase's initial as often as its share of `room`; the rounding never adds up."""
    edges = [round(sum(shares[:i]) * room) for i in range(len(names) + 1)]
    return [name[0] * (edges[i + 1] - edges[i]) for i, name in enumerate(names)]


def _phase(cell: Cell, name: str) -> float:
    return float(sum(getattr(repeat.speculative.phases, name) for repeat in cell.repeats))


def _seconds(cell: Cell) -> float:
    return sum(repeat.speculative.phases.decode for repeat in cell.repeats)


def forecast_panel(profile: Profile, width: int, look: Symbols) -> list[Text] | None:
    """Predicted against measured speedup, and how far off on average."""
    pairs = [
        (cell.predicted.speedup, cell.speedup)
        for cell in profile.finished
        if cell.predicted and cell.predicted.speedup and cell.speedup
    ]
    if not pairs:
        return None
    errors = [predicted / measured - 1 for predicted, measured in pairs]
    size, bias = statistics.mean(map(abs, errors)), statistics.mean(errors)
    said = Text.assemble(
        ("predicted against measured speedup  ", "bold"),
        f"mean error {size:.0%}, bias {bias:+.0%}, {len(pairs)} cells",
    )
    if len(pairs) < 3:
        return [said]
    low, high = min(map(min, pairs)) * 0.9, max(map(max, pairs)) * 1.1
    series = {"a cell; predicted across, measured up, dots: equal": pairs}
    drawn = curves(
        series, title="", width=min(width, 60), look=look, low=low, high=high, diagonal=True
    )
    return [said, *drawn[1:]]
