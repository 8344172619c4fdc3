"""`magicdec tune`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from magicdec.cli import session_api
from magicdec.cli.interrupts import INTERRUPTED, before_exit, finished
from magicdec.cli.output.console import TERMINAL
from magicdec.cli.output.files import check_output
from magicdec.cli.run.command import LosslessnessError
from magicdec.cli.settings.grid_size import refuse_large
from magicdec.cli.settings.grids import GRAMMAR, Grids, apart, drafters, grid_values, read_grids
from magicdec.cli.settings.unused import refuse_unused
from magicdec.engine.draft_spec import NO_TREE, SELF, DraftSpec, who_is
from magicdec.engine.errors import MagicdecError, OutOfMemoryError, require

if TYPE_CHECKING:
    from magicdec.profiles.tuning.candidate import Goal
    from magicdec.profiles.tuning.question import Question
    from magicdec.profiles.tuning.variants import Change


def surveyed(drafts: Sequence[str]) -> tuple[str, ...]:
    """Those that are predicted: without cascades, and with self where a cascade builds on it."""
    own = [draft for draft in drafts if not who_is(draft).cascades]
    if len(own) < len(drafts) and SELF not in own:
        own.insert(0, SELF)
    return tuple(own)


def changes(
    drafts: Sequence[str], trees: Sequence[str], nodes: Sequence[int], policies: Sequence[str]
) -> tuple[Change, ...]:
    """The others. Raises ConfigError for what is none."""
    from magicdec.profiles.files.gamma_names import most_of
    from magicdec.profiles.tuning.variants import Cascade, Policy, Tree

    cascades = [draft for draft in drafts if who_is(draft).cascades]
    for draft in cascades:
        who_is(draft).check()
    most = {name: most_of(name) for name in policies}
    for name, tokens in most.items():
        require(tokens > 0, f"--gamma {name} never drafts; plain decoding is always tried")
    grown = itertools.product((kind for kind in trees if kind != NO_TREE), nodes)
    return (
        *map(Cascade, cascades),
        *(Tree(kind, count) for kind, count in grown),
        *(Policy(name, tokens) for name, tokens in most.items()),
    )


def check_changes(found: Sequence[Change], ways: Sequence[DraftSpec], verify: int) -> None:
    """Raises ConfigError for a change that none of the drafters takes, and for any that is not to
    be measured."""
    for change in found:
        require(any(map(change.takes, ways)), f"{change.flag} {change.needs}")
        require(
            verify > 0,
            f"{change.flag} is measured, not predicted, and --verify 0 makes no real runs; leave "
            "one of them out",
        )


BUDGETS = (128, 256, 512)
TUNE_GRIDS = {
    "batch": "", "context": "", "draft": "", "draft_kv": "", "tree": "", "tree_nodes": "",
    "selector": "snapkv,streaming",
    "budget": f"{','.join(map(str, BUDGETS))}, those below the context", "gamma": "1-6",
    "draft_weights": "int8,same where the device has int8 and drafts are greedy",
}  # fmt: skip
TUNE_EPILOG = (
    f"{GRAMMAR} Cascades, trees and γ policies (--draft self,lookup+self, --tree none,sequoia, "
    "--gamma 1-6,adaptive) cannot be predicted: each is run on top of the best setting that takes "
    "it, besides those of --verify. Of several batches the best is chosen, for each context by "
    "itself. The first time on a machine it runs `magicdec calibrate`, which takes about two "
    "minutes."
)
DECIDE, OUTPUT = "Decision", "Output"
MOST_BATCH, GB, REPEATS = 4096, 1e9, 2


class UnreachableError(MagicdecError):
    """No setting keeps the TPOT limit."""


def tune(
    docs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DOC...",
            help="Text files, - for stdin, builtin:pydoc, or a generated task such as ruler:qa.",
            show_default=False,
        ),
    ] = None,
    *,
    objective: Annotated[
        Literal["throughput", "tpot"],
        typer.Option(
            "--objective", rich_help_panel=DECIDE,
            help="Most tokens/s, or least time per output token.",
        ),
    ] = "throughput",
    max_tpot: Annotated[
        float | None,
        typer.Option(
            "--max-tpot", metavar="MS", show_default=False, rich_help_panel=DECIDE,
            help="Only what keeps this time per output token, in milliseconds.",
        ),
    ] = None,
    max_memory: Annotated[
        float | None,
        typer.Option(
            "--max-memory", metavar="GB", show_default=False, rich_help_panel=DECIDE,
            help="Only what needs no more than this, and no more than is free.",
        ),
    ] = None,
    verify: Annotated[
        int,
        typer.Option(
            "--verify", metavar="N", min=0, max=100, rich_help_panel=DECIDE,
            help="Predicted settings to prove with real runs beside plain decoding, for each "
            "context; 0 only predicts.",
        ),
    ] = 3,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", metavar="N", min=1, max=100, rich_help_panel=DECIDE, show_default=False,
            help=f"Rounds of these runs. One shows no spread. [default: {REPEATS}]",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit", metavar="S", show_default=False, rich_help_panel=DECIDE,
            help="At most so many seconds of real runs, the most promising first; what there was "
            "no time for is named.",
        ),
    ] = None,
    format: Annotated[
        Literal["table", "json", "md"],
        typer.Option("--format", help="Output format.", rich_help_panel=OUTPUT),
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE.jsonl", show_default=False, rich_help_panel=OUTPUT,
            help="Also write the real runs as a profile, for `magicdec profile export`.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=OUTPUT)
    ] = False,
    flags: dict[str, Any],
) -> int | None:  # fmt: skip
    """Find the drafter, budget and γ for your documents on this machine, or that none pays.

    Surveys acceptance on the documents, prices every setting with this machine's calibration, then
    proves the best few against plain decoding with real runs. --batch, --context, --draft,
    --draft-kv, --tree, --tree-nodes, --selector, --budget, --gamma and --draft-weights take several
    values.
    """
    policies: tuple[str, ...] = ()
    if flags["gamma"] is not None:
        grid_values("gamma", flags["gamma"], "--gamma", words=True)  # or says all that it takes
        numbers, policies = apart("gamma", flags["gamma"])
        flags = flags | {"gamma": numbers}
    grids = read_grids(flags, tuple(TUNE_GRIDS))
    refuse_unused(flags, grids.values, docs or [])
    require(bool(docs), "no document given; name text files, or builtin:pydoc")
    require(output is None or verify > 0, "--output writes real runs, and --verify 0 makes none")
    above_0 = {"--max-tpot": max_tpot, "--max-memory": max_memory, "--time-limit": time_limit}
    for option, value in above_0.items():
        require(
            value is None or 0 < value < 1e9, f"{option} must be above 0 and below 1e9, got {value}"
        )
    require(
        time_limit is None or verify > 0, "--time-limit bounds real runs, and --verify 0 makes none"
    )
    require(verify > 0 or repeats is None, "--repeats is of real runs, and --verify 0 makes none")
    if output is not None:
        check_output(output, inputs=docs or (), new=True)
    asked = dataclasses.replace(
        question(
            grids, flags, objective, max_tpot, max_memory, verify, repeats or REPEATS, policies
        ),
        time_limit=time_limit,
    )

    from magicdec.cli.output.progress import choose_display
    from magicdec.cli.tune.output import deliver, write_profile
    from magicdec.cli.tune.session import TuneOutcome, tune_session

    weights = _values(grids, flags, "draft_weights", ())
    outcome = TuneOutcome(grids.settings, asked, tuple(docs or ()), weights)
    display = choose_display(quiet)
    before_exit(display.close)
    try:
        if not finished(lambda: tune_session(outcome, session_api.open_engine, display)):
            outcome.interrupted = True
    finally:
        display.close()
    known = any(answer.options for answer in outcome.answers)
    if outcome.error is not None and not known:
        raise outcome.error
    try:
        if known:
            deliver(outcome, format, output)
    finally:  # whoever reads the page may be gone: the runs took minutes
        if output is not None:
            write_profile(outcome, output)
    if outcome.interrupted:
        kept = "what is known so far is above" if known else "nothing is known yet"
        TERMINAL.note(f"interrupted: {kept}")
        return INTERRUPTED
    if outcome.error is not None:
        raise outcome.error
    if outcome.lossy:
        raise LosslessnessError(
            f"{outcome.lossy} gave another text than plain decoding, and it is not a tie"
        )
    answers = zip(outcome.answers, outcome.recommendations, strict=True)
    if full := [f"{answer.context:,}" for answer, found in answers if found is None]:
        room = "memory" if max_memory is None else f"--max-memory {max_memory:g}"
        raise OutOfMemoryError(
            f"nothing fits in {room} at context {', '.join(full)}; try a smaller --batch"
        )
    if not all(found and found.reachable for found in outcome.recommendations):
        raise UnreachableError(f"no setting tried keeps --max-tpot {max_tpot:g}; see above")
    return None


def question(
    grids: Grids, flags: dict[str, Any], goal: Goal, max_tpot: float | None,
    max_memory: float | None, verify: int, repeats: int, policies: Sequence[str] = (),
) -> Question:  # fmt: skip
    """Raises ConfigError for what cannot be tried."""
    from magicdec.profiles.tuning.candidate import Objective
    from magicdec.profiles.tuning.question import Question

    batches, contexts = grids.values("batch"), grids.values("context")
    require(max(batches) <= MOST_BATCH, f"--batch: {MOST_BATCH:,} is the most that can be tuned")
    gammas = tuple(gamma for gamma in _values(grids, flags, "gamma", tuple(range(1, 7))) if gamma)
    require(
        bool(gammas), "--gamma 0 drafts nothing; plain decoding is always tried, give 1 or more"
    )
    refuse_large({"batch": len(batches), "context": len(contexts), "gamma": len(gammas)})
    of_drafters = ("draft", "draft_kv", "selector", "budget")
    refuse_large({name: len(grids.values(name)) for name in of_drafters})
    ways = tuple(_drafters(grids, flags))
    places = len(batches) * len(contexts)
    refuse_large({"the places": places, "gamma": len(gammas), "the drafters": len(ways)})
    found = changes(
        grids.values("draft"), grids.values("tree"), grids.values("tree_nodes"), policies
    )
    check_changes(found, ways, verify)
    tokens = grids.settings.max_new_tokens
    require(
        tokens >= 2,
        f"max-new-tokens must be 2 or more here, got {tokens}: the first comes from the prefill, "
        "and only the others are drafted",
    )
    plain = dataclasses.replace(grids.settings, draft=SELF, tree=NO_TREE)  # each run has its own
    return Question(
        batches=tuple(sorted(batches)), contexts=tuple(contexts),
        drafters=ways, gammas=gammas, changes=found, config=plain.decode_config(),
        objective=Objective(goal, None if max_tpot is None else max_tpot / 1e3),
        max_memory=None if max_memory is None else int(max_memory * GB),
        verify=verify, repeats=repeats,
    )  # fmt: skip


def _values(grids: Grids, flags: dict[str, Any], name: str, default: tuple[Any, ...]) -> Any:
    """What the command line named, else what is usually tried: other sources give one value."""
    return grids.values(name) if flags.get(name) is not None else default


def _drafters(grids: Grids, flags: dict[str, Any]) -> Sequence[DraftSpec]:
    contexts = [context for context in grids.values("context") if context is not None]
    least = min(contexts, default=BUDGETS[-1] + 1)
    below = tuple(budget for budget in BUDGETS if budget < least) or (max(1, least // 4),)
    selectors = _values(grids, flags, "selector", ("snapkv", "streaming"))
    budgets = _values(grids, flags, "budget", below)
    return drafters(
        selectors, budgets, grids.settings.selector_option,
        surveyed(grids.values("draft")), grids.values("draft_kv"),
    )  # fmt: skip
