"""The report of a run for people: texts first, then the numbers, the verdict last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from magicdec.cli.output.console import Symbols, printable, symbols
from magicdec.cli.output.numbers import (
    PHASE_STYLES,
    bar,
    counted,
    gamma_lines,
    inner_line,
    position_lines,
    rate,
    ratio_text,
    settings_line,
)
from magicdec.cli.run.session import Outcome
from magicdec.engine.compare.verdict import Losslessness
from magicdec.engine.gamma.policy import FIXED
from magicdec.engine.report import RowReport, RunReport, Tally
from magicdec.profiles.recorded.run_record import Speedup

if TYPE_CHECKING:
    from magicdec.cli.run.prediction import Judged, Prediction
    from magicdec.profiles.machine.steadiness import Steadiness

UNCHECKED_SAMPLING = (
    "not checked: sampled text differs from run to run by design of rejection sampling; "
    "what is guaranteed is the distribution"
)
BEFORE = ("load", "prefill")  # phases before the first step
MAX_TIES = 8
MAX_BARS = 12


def print_report(console: Console, outcome: Outcome) -> None:
    """Writes everything that is known, for a finished as for an interrupted run with rows."""
    look = symbols(console)
    report, baseline = outcome.report, outcome.baseline
    shown = report if report.rows or baseline is None else baseline
    for row in shown.rows:
        console.print(_row_title(row, look), soft_wrap=True)
        # Wrapped by the terminal alone: in a file the text keeps its own lines.
        console.print(Text(printable(row.text)), soft_wrap=True)
        console.print()
    for part in _summary(outcome, report, baseline, console.width, look):
        console.print(part)
        console.print()
    if baseline is not None:
        console.print(_verdict(outcome, baseline, report, look))
    if outcome.prediction is not None and (judged := outcome.judged) is not None:
        console.print(_predicted(outcome.prediction, judged, look))


def _predicted(prediction: Prediction, judged: Judged, look: Symbols) -> Text:
    """The prediction, its error and what most of it comes from."""
    text = Text.assemble(("predicted ", "dim"))
    text.append_text(ratio_text(prediction.seconds.speedup, look))
    if judged.error is not None and judged.own_error is not None:
        text.append(f"   error {judged.error:+.1%}", "bold")
        own = f"{judged.own.speedup:.2f}{look.times}"
        text.append(f", with the run's own acceptance {own} and {judged.own_error:+.1%}", "dim")
    return text.append(f"\n          {judged.terms[0].sentence}", "dim")


def _row_title(row: RowReport, look: Symbols) -> Text:
    title = Text.assemble((f"row {row.row}", "bold cyan"))
    reason = row.finish_reason or "unfinished"
    title.append(f"  {row.document}", "bold")
    title.append(
        f"  {row.prompt_tokens:,} {look.arrow} {counted(len(row.token_ids), 'token')}"
        f" {look.dot} {reason}",
        "dim",
    )
    return title


def _summary(
    outcome: Outcome, report: RunReport, baseline: RunReport | None, width: int, look: Symbols
) -> Iterator[RenderableType]:
    width = min(width, 100)
    yield _heading(outcome, look)
    if outcome.policy.name != FIXED.name and report.gamma_chosen:
        yield gamma_lines(outcome.policy, outcome.settings.gamma, report, look)
    if report.num_spec_steps:
        yield _acceptance(report, width, look)
    yield _phases(report, baseline, look)
    yield _speed(outcome, report, baseline)


def _heading(outcome: Outcome, look: Symbols) -> RenderableType:
    info = outcome.info
    assert info is not None, "there is no report before there are rows"
    line = Text.assemble((info.model, "bold"))
    line.append(f" {look.dot} {info.device} {info.dtype} {look.dot} {info.selector}", "dim")
    values = Text()
    for name, value in settings_line(info, look):
        values.append(f"{name} ", "dim").append(f"{value}   ", "bold")
    total = sum(size for _, size in outcome.memory)
    parts = f" {look.dot} ".join(f"{name} {size_text(size)}" for name, size in outcome.memory)
    return Group(line, values, Text(f"memory {size_text(total)}: {parts}", "dim"))


def _acceptance(report: Tally, width: int, look: Symbols) -> RenderableType:
    facts = Text.assemble(("acceptance rate ", "dim")).append(
        rate(report.acceptance_rate, 3), "bold green"
    )
    facts.append(
        f" ({report.num_accepted_draft_tokens:,} of {report.num_draft_tokens:,} drafted)   ", "dim"
    )
    facts.append("mean length ", "dim").append(f"{report.mean_acceptance_length:.2f}", "bold")
    facts.append(f" over {counted(report.num_spec_steps, 'row step')}", "dim")
    if cut := report.num_cut_draft_tokens:
        facts.append(f"\n{counted(cut, 'draft token')} past the rows' ends cut off", "dim")
    if report.inner is not None:
        facts.append("\n").append_text(inner_line(report.inner))
    half = (width - 3) // 2
    positions = position_lines(report, half, MAX_BARS, look)
    counts = [
        Text.assemble(
            (f"{accepted:<4} ", "dim"),
            f"{count / report.num_spec_steps:>4.0%} ",
            bar(count / report.num_spec_steps, half - 10, "green", look),
        )
        for accepted, count in enumerate(report.histogram[:MAX_BARS])
    ]
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_row(Text("by position", "bold"), Text("accepted per step", "bold"))
    grid.add_row(Group(*positions), Group(*counts))
    if not report.siblings_tried:
        return Group(facts, Text(""), grid)
    shares = " ".join(rate(value) for value in report.sibling_acceptance[:MAX_BARS])
    children = Text.assemble(("by child ", "dim"), (shares, "bold"))
    return Group(facts, children, Text(""), grid)


def _phases(report: RunReport, baseline: RunReport | None, look: Symbols) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("phase")
    runs = [("", report)] if baseline is None else [("plain ", baseline), ("spec ", report)]
    for title, _ in runs:
        for name in (f"{title}s", "ms/step", "share"):
            table.add_column(name, justify="right")
    for name in (*BEFORE, *PHASE_STYLES):
        cells: list[Text] = []
        for _, run in runs:
            seconds = getattr(run.phases, name)
            cells += _phase_cells(seconds, run, name in BEFORE)
        table.add_row(Text(name, PHASE_STYLES.get(name, "")), *cells)
    totals: list[Text] = []
    for _, run in runs:
        totals += _phase_cells(run.decode_seconds, run, False)
    table.add_row(Text("decode", "bold"), *[Text(cell.plain, "bold") for cell in totals])
    return Group(table, _prefill_note(report, baseline))


def _prefill_note(report: RunReport, baseline: RunReport | None) -> Text:
    """Where the prompts' KV came from: a prefill that was mostly reused is no measure of speed."""
    first = baseline or report
    reused, total = first.reused_prompt_tokens, first.prompt_tokens
    note = f"prefill of {counted(total, 'prompt token')}: "
    note += f"{total - reused:,} computed, {reused:,} reused"
    return Text(note + (", shared by both runs, as is what plain loads" if baseline else ""), "dim")


def _phase_cells(seconds: float, run: RunReport, before: bool) -> list[Text]:
    if not seconds:
        return [Text("-", "dim"), Text(""), Text("")]
    cells = [Text(f"{seconds:.3f}")]
    if before or not run.steps:
        return [*cells, Text(""), Text("")]
    cells.append(Text(f"{seconds / run.steps * 1e3:.2f}"))
    return [*cells, Text(f"{seconds / run.decode_seconds:.0%}", "dim")]


def _speed(outcome: Outcome, report: RunReport, baseline: RunReport | None) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("decoding", "tokens", "steps", "tokens/s", "TPOT ms", "KV read"):
        table.add_column(name, justify="left" if name == "decoding" else "right")
    runs = [("speculative" if outcome.settings.gamma else "plain", report)]
    if baseline is not None:
        runs = [("plain", baseline), ("speculative", report)]
    for name, run in runs:
        speed, tpot, read = run.tokens_per_s, run.tpot_s, run.draft_entries_read
        table.add_row(
            Text(name, "bold"),
            f"{run.decode_tokens:,}",
            f"{run.steps:,}",
            Text(f"{speed:,.1f}" if speed else "-", "bold"),
            f"{tpot * 1e3:,.1f}" if tpot else "-",
            f"{read:,.0f}" if read and run.num_spec_steps else "-",
        )
    return table


def _verdict(
    outcome: Outcome, baseline: RunReport, report: RunReport, look: Symbols
) -> RenderableType:
    lines: list[Text] = []
    speedup = Speedup.of(baseline, report)
    if speedup.decode is not None and speedup.end_to_end is not None:
        line = Text.assemble(("speedup  ", "dim"))
        for name, value in (("decode", speedup.decode), ("end to end", speedup.end_to_end)):
            line.append_text(ratio_text(value, look)).append(f" {name}   ", "dim")
        lines.append(line)
        if (steady := outcome.steadiness) is not None:
            lines.append(Text(f"         {steadiness_text(steady, speedup.decode, look)}", "dim"))
    verdict = outcome.lossless
    if verdict is not None:
        lines += lossless_lines(verdict, report, outcome.settings.temperature > 0, look)
    return Group(*lines)


def steadiness_text(steady: Steadiness, speedup: float, look: Symbols) -> str:
    """How far to trust a decode speedup, in a line."""
    spread = steady.speedups(speedup)
    parts = ["no spread: both ran once, one after the other"]
    if steady.turns > 1:
        parts = [f"{steady.turns} turns each"]
    if spread is not None:
        low, high = spread
        parts = [f"{low:.2f} to {high:.2f}{look.times} by turn, of {len(steady.paces)}"]
    if steady.others is not None:
        parts.append(f"other programs {steady.others:.0%} of the CPUs")
    if steady.warning is not None:
        parts.append("disturbed")
    return f" {look.dot} ".join(parts)


def lossless_lines(
    verdict: Losslessness, report: RunReport, sampled: bool, look: Symbols
) -> list[Text]:
    """The verdict and, for a difference, where and by how much."""
    label = Text.assemble(("lossless ", "dim"))
    if not verdict.checked:
        reason = UNCHECKED_SAMPLING if sampled else f"not checked: {verdict.reason}"
        return [label.append(reason, "yellow")]
    if verdict.identical:
        tokens = sum(len(row.token_ids) for row in report.rows)
        label.append(f"{look.check} identical", "bold green")
        size = f"{counted(tokens, 'token')} in {counted(len(report.rows), 'row')}"
        return [label.append(f" to plain decoding, {size}", "dim")]
    if verdict.ok:
        ties = counted(len(verdict.divergences), "tie")
        label.append(f"{look.tie} {ties}", "bold yellow")
        label.append(", otherwise identical to plain decoding", "dim")
    else:
        label.append(f"{look.cross} FAILED", "bold red")
        label.append(": tokens differ by more than rounding", "red")
    lines = [label]
    ranked = sorted(verdict.divergences, key=lambda d: (d.tie, d.row))
    for d in ranked[:MAX_TIES]:
        kind, style = ("tie", "") if d.tie else ("differs", "red")
        pair = f"plain {_token(d.plain_token)}, spec {_token(d.speculative_token)}"
        gap = f"logit gap {d.gap:.2g} (rounding {d.tolerance:.2g})"
        lines.append(Text(f"  row {d.row}, token {d.position}: {kind}, {pair}, {gap}", style))
    if len(ranked) > MAX_TIES:
        lines.append(Text(f"  and {len(ranked) - MAX_TIES} more; --json lists all", "dim"))
    return lines


def _token(token: int | None) -> str:
    return "ended" if token is None else str(token)


def size_text(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit in ("B", "kB", "MB") else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
