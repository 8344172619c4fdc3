"""The page of `magicdec tune`: what to run, the ranking, the reason, the map of break-even."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from magicdec.cli.output.columns import render
from magicdec.cli.output.console import ASCII, Symbols, plain_text, symbols
from magicdec.cli.output.files import shell_line, shell_word
from magicdec.cli.output.heatmap import Map, heat_lines
from magicdec.cli.output.numbers import counted
from magicdec.cli.settings.knobs import KNOBS, Settings
from magicdec.cli.settings.unused import idle_names
from magicdec.cli.tune.session import TuneOutcome
from magicdec.cli.tune.table import columns, ranking_rows, unpredicted
from magicdec.engine.draft_spec import NO_TREE
from magicdec.engine.text.documents import STDIN
from magicdec.engine.untrusted import clean
from magicdec.profiles.calibration.calibration import Calibration
from magicdec.profiles.tuning.candidate import Candidate, Place
from magicdec.profiles.tuning.correcting import corrected
from magicdec.profiles.tuning.pricing import Option
from magicdec.profiles.tuning.question import Answer
from magicdec.profiles.tuning.ranking import Measured
from magicdec.profiles.tuning.recommend import Recommendation


def speedup_map(outcome: TuneOutcome) -> tuple[Map, str, str] | None:
    """The map, its title and what it rests on. None where there is no map, as after an interrupt
    in the middle of a survey."""
    answers = [answer for answer in outcome.answers if answer.options]
    if not answers:
        return None
    batches, contexts = outcome.question.batches, [answer.context for answer in answers]
    ran = {place: found.speedup for place, found in _ran(outcome).items()}
    basis = []
    if ran:
        basis = ["measured where drafts ran, elsewhere predicted and scaled to those runs"]
    if len(batches) * len(contexts) > 1:
        title, best = "speedup" if ran else "predicted speedup", _grid(outcome, answers)
    else:
        title, best = "where it would pay", _around(answers[0])
        basis.insert(0, f"with the acceptance of context {contexts[0]:,}")
        places = [option.place for option in answers[0].around]
        batches, contexts = (
            tuple(sorted({place.batch for place in places})),
            sorted({place.context for place in places}),
        )
    drawn = _drawn(batches, contexts, best, ran, _scale(answers))
    if drawn is None:
        return None
    return drawn, f"{title}, best draft of each place; batch down, context across", "; ".join(basis)


Best = Callable[[Place], Option | None]


def _ran(outcome: TuneOutcome) -> dict[Place, Measured]:
    """The draft that is recommended at a place, else the best that ran there."""
    best: dict[Place, Measured] = {}
    drafts = [
        one for answer in outcome.answers for one in answer.measured() if not one.candidate.plain
    ]
    for one in sorted(drafts, key=outcome.question.objective.value):
        best[one.place] = one
    for found in outcome.recommendations:
        if found is not None and found.measured is not None and found.speculate:
            best[found.place] = found.measured
    return best


def _scale(answers: Sequence[Answer]) -> float:
    """By how much the runs were faster than what their step times make of the predictions."""
    ratios = []
    for answer in answers:
        now = answer.factors()
        for one in answer.measured():
            option = answer.option_of(one)
            if option is not None and not one.candidate.plain and one.speedup > 0:
                ratios.append(one.speedup / corrected(option, now).speedup)
    return geometric_mean(ratios) if ratios else 1.0


def _grid(outcome: TuneOutcome, answers: Sequence[Answer]) -> Best:
    by_context = {answer.context: answer for answer in answers}
    return lambda place: by_context[place.context].best(place, outcome.question.objective)


def _around(answer: Answer) -> Best:
    now = answer.factors()
    return {option.place: corrected(option, now) for option in answer.around}.get


def _drawn(
    batches: Sequence[int], contexts: Sequence[int], best: Best, ran: Mapping[Place, float],
    scale: float,
) -> Map | None:  # fmt: skip
    shape = (len(batches), len(contexts))
    speedup, fits = np.zeros(shape), np.zeros(shape, np.bool_)
    for row, batch in enumerate(batches):
        for column, context in enumerate(contexts):
            place = Place(batch, context)
            option = best(place)
            if option is None:
                return None
            speedup[row, column] = ran.get(place, option.speedup * scale)
            fits[row, column] = option.memory.fits
    return Map(tuple(batches), tuple(contexts), speedup, fits) if speedup.size else None


DECIDED = (
    "batch", "context", "gamma", "tree", "tree_nodes", "draft", "draft_kv", "selector",
    "selector_option", "budget", "draft_weights",
)  # fmt: skip


def command_line(
    sources: Sequence[str], settings: Settings, place: Place, candidate: Candidate,
    *, ascii: bool = False,
) -> str:  # fmt: skip
    """`magicdec run` with what was decided, and every other setting that is not the default.

    ascii: see `shell_line`.
    """
    parts = ["magicdec", "run", *map(_argument, sources), "--batch", str(place.batch)]
    if settings.context is not None or place.context:
        parts += ["--context", str(place.context)]
    drafter = candidate.drafter
    if drafter is None:
        parts += ["--gamma", "0"]
    else:
        ahead = str(candidate.gamma) if drafter.fixed else drafter.gamma_policy
        parts += [*drafter.flags, "--gamma", ahead]
        if drafter.kind != "lookup":
            parts += ["--draft-weights", drafter.draft_weights]
    if drafter is not None and drafter.tree != NO_TREE:
        parts += ["--tree", drafter.tree, "--tree-nodes", str(drafter.tree_nodes)]
    elif settings.tree != NO_TREE:  # of the user's own settings, which the run will read, too
        parts += ["--tree", NO_TREE]
    decided: dict[str, Any] = {"batch": place.batch, "context": place.context, "gamma": 0}
    if drafter is not None:
        decided |= {
            "gamma": candidate.gamma, "draft": drafter.draft, "tree": drafter.tree,
            "draft_kv": drafter.draft_kv or settings.draft_kv,
            "selector": drafter.selector or settings.selector,
        }  # fmt: skip
    idle = idle_names(lambda name: (decided.get(name, getattr(settings, name)),), sources)
    for knob in KNOBS:
        value = getattr(settings, knob.name)
        if knob.name not in {*DECIDED, *idle} and value != knob.default:
            parts += _option(knob.flag, knob.key, value)
    return shell_line(parts, ascii=ascii)


def _argument(source: str) -> str:
    """No option, even where a file's name begins like one."""
    return f"./{source}" if source.startswith("-") and source != STDIN else source


def _option(flag: str, key: str, value: Any) -> list[str]:
    match value:
        case bool():
            return [flag if value else f"--no-{key}"]
        case tuple():
            return [part for item in value for part in (flag, str(item))]
        case dict():
            return [part for name, item in value.items() for part in (flag, f"{name}={item}")]
    return [flag, str(value)]


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
