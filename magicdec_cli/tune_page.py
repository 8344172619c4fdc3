"""The page of `magicdec tune`: what to run, the ranking, the reason, the map of break-even."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from magicdec.cli.bars import counted
from magicdec.cli.columns import render
from magicdec.cli.console import ASCII, Symbols, plain_text, symbols
from magicdec.cli.heatmap import heat_lines
from magicdec.cli.shell_words import shell_word
from magicdec.cli.tune_line import command_line
from magicdec.cli.tune_map import speedup_map
from magicdec.cli.tune_session import TuneOutcome
from magicdec.cli.tune_table import columns, ranking_rows, unpredicted
from magicdec.engine.draft_spec import NO_TREE
from magicdec.engine.harmless import clean
from magicdec.profiles.calibrated import Calibration
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.recommending import Recommendation


def print_page(console: Console, outcome: TuneOutcome, output: Path | None) -> None:
    """Commands are never wrapped: they are there to be copied."""
    look = symbols(console)
    first = True
    for part in _parts(console, outcome, output, look):
        if not first:
            console.print()
        first = False
        for line in part:
            console.print(line, soft_wrap=isinstance(line, Text) and line.style == "cyan")


def _parts(
    console: Console, outcome: TuneOutcome, output: Path | None, look: Symbols
) -> Iterator[list[RenderableType]]:
    yield [_text(line, look, style) for line, style in _heading(outcome)]
    pairs = zip(outcome.answers, outcome.recommendations, strict=True)
    for answer, found in pairs:
        if found is None:
            yield [_text(f"context {answer.context:,}: {nothing(answer)}", look, "bold")]
            continue
        yield [
            _text(f"{found.place.label}: {outcome.question.objective.label}", look, ""),
            _text(headline(found), look, "bold"),
            Text(command(outcome, found, ascii=look is ASCII), "cyan"),
        ]
        rows = ranking_rows(answer, found, outcome.question.objective)
        wanted = columns(outcome.question.objective)
        table, left_out = render(rows, wanted, console.width, look)
        below = _below(left_out, unpredicted(rows), look)
        yield [table, *(_text(line, look, "dim") for line in below)]
        yield [_text(" ".join(found.reasons), look, "")]
    drawn = speedup_map(outcome)
    if drawn is not None:
        shown, title, basis = drawn
        said = [_text(title, look, "bold"), *([_text(basis, look, "dim")] if basis else [])]
        yield [*said, *heat_lines(shown, console.width, look)]
    hint = export_hint(outcome, output)
    if hint:
        yield [_text(hint[0], look, "dim"), _text(hint[1], look, "cyan")]


def _heading(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    env, question = outcome.env, outcome.question
    rows = max((answer.rows for answer in outcome.answers), default=0)
    tokens = question.config.max_new_tokens
    model = clean(Path(str(env.get("model"))).name)
    yield f"{model} · {env.get('device')} {env.get('dtype')}", "bold"
    yield (
        (
            f"acceptance: surveyed on {counted(rows, 'row')} of {', '.join(outcome.documents)}, "
            f"{counted(tokens, 'new token')} each"
        ),
        "dim",
    )
    if outcome.calibration is not None:
        yield f"step times: {calibrated(outcome.calibration)}", "dim"
    for note in outcome.notes:
        yield f"note: {note}", "yellow"


def calibrated(calibration: Calibration) -> str:
    """When, and how far its fit lies from what was measured."""
    errors = ", ".join(f"{one.kind} {one.median:.1%}" for one in calibration.residuals)
    return f"calibrated {calibration.created[:10]}; median error {errors}"


def headline(found: Recommendation) -> str:
    """The decision in one line."""
    what = found.candidate.label if found.speculate else "don't speculate"
    if not found.reachable:
        return f"The TPOT limit is out of reach; closest: {what}"
    said = what[0].upper() + what[1:] if not found.speculate else f"Use {what}"
    if found.measured is None:
        speedup = f": {found.speedup:.2f}×" if found.speculate else ""
        return f"{said}{speedup}, only predicted"
    if not found.speculate:
        return f"{said} (measured)"
    speedups = found.measured.speedups
    reach = f" ({min(speedups):.2f} to {max(speedups):.2f})" if len(speedups) > 1 else ""
    return f"{said}: {found.speedup:.2f}× measured{reach}"


def nothing(answer: Answer) -> str:
    return "nothing fits in memory" if answer.options else "not surveyed yet"


def command(outcome: TuneOutcome, found: Recommendation, *, ascii: bool = False) -> str:
    return command_line(
        outcome.sources, outcome.settings, found.place, found.candidate, ascii=ascii
    )


def export_hint(outcome: TuneOutcome, output: Path | None) -> tuple[str, str] | None:
    """How to take the measured setting to another engine."""
    speculate = any(found and found.speculate for found in outcome.recommendations)
    cells = [cell for answer in outcome.answers for cell in answer.cells()]
    if not speculate or not cells:
        return None
    file = shell_word(str(output)) if output is not None else "tuned.jsonl"
    said = "the setting for another engine" if output else "with -o tuned.jsonl, for another engine"
    flat = " --tree none" if any(cell.key.tree != NO_TREE for cell in cells) else ""
    return f"{said}:", f"magicdec profile export {file} --to vllm --draft-model MODEL{flat}"


def _below(left_out: list[str], unpredicted: str, look: Symbols) -> Iterator[str]:
    yield f"{look.arrow} chosen  {look.tie} not to be told from the best  ~ predicted, not run"
    if unpredicted:
        yield unpredicted
    if left_out:
        yield f"no room for: {', '.join(left_out)}; --format json has all"


def _text(line: str, look: Symbols, style: str) -> Text:
    return Text(plain_text(line, look), style)
